import grpc
import pytest

from configurators.store.etcd.errors import (
    AnswerTooLarge,
    Compacted,
    LeaseGone,
    StoreError,
    StoreFull,
    StoreRefused,
    judge,
)

Code = grpc.StatusCode


@pytest.mark.parametrize(
    ("code", "details", "outcome"),
    [
        (Code.UNAVAILABLE, "failed to connect to all addresses; last error: refused", "never"),
        (Code.UNAVAILABLE, "DNS resolution failed for etcd:2379", "never"),
        (Code.UNAVAILABLE, "etcdserver: no leader", "never"),
        (Code.UNKNOWN, "raft proposal dropped", "never"),
        (Code.RESOURCE_EXHAUSTED, "etcdserver: too many requests", "never"),
        (Code.UNAVAILABLE, "Socket closed", "perhaps"),
        (Code.UNAVAILABLE, "etcdserver: leader changed", "perhaps"),
        (Code.UNAVAILABLE, "etcdserver: request timed out", "perhaps"),
        (Code.DEADLINE_EXCEEDED, "Deadline Exceeded", "perhaps"),
        (Code.INTERNAL, None, "perhaps"),
        (Code.UNAUTHENTICATED, "etcdserver: invalid auth token", "token"),
        (Code.INVALID_ARGUMENT, "etcdserver: revision of auth store is old", "token"),
    ],
)
def test_only_what_was_surely_not_done_counts_as_not_done(
    code: grpc.StatusCode, details: str | None, outcome: str
) -> None:
    verdict = judge(code, details)
    assert (verdict.outcome, verdict.error) == (outcome, None)


@pytest.mark.parametrize(
    ("code", "details", "error"),
    [
        (Code.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded", StoreFull),
        (
            Code.RESOURCE_EXHAUSTED,
            "CLIENT: Received message larger than max (9 vs. 8)",
            AnswerTooLarge,
        ),
        (Code.RESOURCE_EXHAUSTED, "grpc: received message larger than max (9 vs. 8)", StoreRefused),
        (
            Code.OUT_OF_RANGE,
            "etcdserver: mvcc: required revision has been compacted",
            Compacted,
        ),
        (Code.NOT_FOUND, "etcdserver: requested lease not found", LeaseGone),
        (Code.PERMISSION_DENIED, "etcdserver: permission denied", StoreRefused),
        (Code.INVALID_ARGUMENT, "etcdserver: duplicate key given in txn request", StoreRefused),
    ],
)
def test_what_will_not_be_done_has_its_own_error(
    code: grpc.StatusCode, details: str, error: type[StoreError]
) -> None:
    verdict = judge(code, details)
    assert verdict.outcome == "final"
    assert type(verdict.error) is error
