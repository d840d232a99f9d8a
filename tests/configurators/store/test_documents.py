import pytest

from configurators.state.network import first_network
from configurators.state.spaces import new_space
from configurators.store import documents
from configurators.store.documents import BadDocument, encode
from configurators.store.model import KeyUse, NextFilter, Process, Record, Timing
from sdn.network.topologies import topology
from sdn.tables.pipeline import PlanName

RECORD = Record(
    id="s1f-0123456789abcdef",
    kind="subscription",
    host="h1",
    space="stocks",
    filter={"price": {"between": [1.5, 2]}, "symbol": ["A", "Ü"]},
    regions={0: bytes(range(48)), 1: b""},
    state="removing",
    seq=7,
    created=1700000000.25,
    by="d1",
    acknowledged=1700000001.5,
    flow_ops=12,
    timing=Timing(indexed_ms=0.5, total_ms=1.5),
    label="mine",
    ttl=60.0,
    expires=1700000061.5,
    reason="waits for s3",
    next=NextFilter({"price": 3}, {1: bytes(24)}),
)
SCHEMA = {
    "attributes": [
        {"name": "price", "type": "float", "min": 0, "max": 1000},
        {"name": "symbol", "type": "string"},
    ]
}


@pytest.mark.parametrize(
    "record",
    [RECORD, Record("a1-0", "advertisement", "h", "s", None, {}, "pending", 1, 0.0)],
    ids=["full", "bare"],
)
def test_a_record_is_read_as_it_was_written(record: Record) -> None:
    assert documents.decode_record(encode(record)) == record


def test_processes_wires_and_uses_of_keys_are_read_as_they_were_written() -> None:
    process = Process("c1", "127.0.0.1:9", 42, "node", openflow="0.0.0.0:6653")
    assert documents.decode_process(encode(process)) == process
    wires = {"h1": ("127.0.0.1", 4711)}
    assert documents.decode_wires(encode(wires)) == wires
    use = KeyUse(b"\x00\xff", ("s1-1", "s1-2"))
    assert documents.decode_key_use(encode(use)) == use


@pytest.mark.parametrize("plan", ["legs", "lpm"])
def test_a_space_is_read_as_it_was_written(plan: PlanName) -> None:
    space = new_space("stocks", 0x1F, SCHEMA, plan, 16)
    assert documents.decode_space(encode(space)) == space


@pytest.mark.parametrize("plan", ["legs", "lpm"])
def test_a_network_is_read_as_it_was_written(plan: PlanName) -> None:
    network = first_network(topology("fat-tree:10"), plan, 2)
    assert documents.decode_network(encode(network)) == network


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", b"junk", encode(RECORD)[:-3], encode(RECORD) + b"x"]
)
def test_bytes_that_are_no_document_are_rejected(data: bytes) -> None:
    with pytest.raises(BadDocument, match="cannot be read"):
        documents.decode_record(data)


def test_a_document_of_another_kind_is_not_taken_for_a_record() -> None:
    with pytest.raises(BadDocument):
        documents.decode_record(encode(Process("c1", "127.0.0.1:9", 42, "node")))
