import pytest

from sdn.openflow.protocol.constants import MAX_XID, Multipart, Type
from sdn.openflow.protocol.pending import MAX_PENDING, Pending, TooManyRequests

BARRIER = Type.BARRIER_REPLY


def test_an_answer_is_found_once_and_only_under_its_own_kind() -> None:
    pending = Pending()
    xid = pending.expect(Type.MULTIPART_REPLY, Multipart.FLOW)
    assert pending.find(xid, BARRIER) is None
    assert pending.find(xid, Type.MULTIPART_REPLY, Multipart.GROUP_DESC) is None
    assert pending.find(xid, Type.MULTIPART_REPLY, Multipart.FLOW)
    assert pending.settle(xid, Type.MULTIPART_REPLY, Multipart.FLOW)
    assert pending.settle(xid, Type.MULTIPART_REPLY, Multipart.FLOW) is None
    assert len(pending) == 0


def test_a_run_has_consecutive_xids_and_ends_with_the_one_that_is_answered() -> None:
    pending = Pending(10)
    assert pending.expect(BARRIER, before=5) == 15
    assert pending.take() == 16


def test_a_run_never_wraps_around() -> None:
    pending = Pending(MAX_XID - 3)
    assert pending.expect(BARRIER, before=3) == MAX_XID
    pending = Pending(MAX_XID - 3)
    assert pending.expect(BARRIER, before=4) == 5
    assert pending.take() == 6


def test_xids_that_await_an_answer_are_not_given_again() -> None:
    pending = Pending(1)
    for expected in (1, 2, 3):
        assert pending.expect(BARRIER) == expected
    run = pending.expect(BARRIER, before=10)
    assert run == 14
    pending.drop(2)
    assert pending.take(MAX_XID - 15) == 15  # the next one is the last
    assert pending.take() == MAX_XID
    assert pending.take() == 2
    # A message before a barrier may still be refused, so its xid is not free either.
    assert pending.take() == 15
    assert pending.find(run, BARRIER)


def test_a_long_run_goes_behind_all_that_awaits_an_answer() -> None:
    pending = Pending(1)
    pending.expect(BARRIER, before=4)
    pending.take(10)
    pending.expect(BARRIER)
    pending.take(MAX_XID - 17)  # the next one is the last
    assert pending.expect(BARRIER, before=10) == 27
    assert [pending.drop(xid) is not None for xid in (5, 16, 27)] == [True, True, True]


def test_too_many_open_requests_are_refused() -> None:
    pending = Pending()
    for _ in range(MAX_PENDING):
        pending.expect(BARRIER)
    with pytest.raises(TooManyRequests, match="unanswered"):
        pending.expect(BARRIER)
    pending.drop(1)
    pending.expect(BARRIER)
    pending.clear()
    assert len(pending) == 0
