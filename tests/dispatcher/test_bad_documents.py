"""Documents in etcd that dzflow has not written: every process goes on, and says so."""

import pytest
from msgspec.structs import replace

from configurators.state.spaces import new_space
from configurators.store.documents import decode_network, decode_record, encode
from configurators.store.etcd.client import Etcd
from configurators.store.keys import NETWORK, SPACES
from configurators.store.model import Record, RecordKind
from dispatcher.calls import RecordSpec
from dispatcher.dispatcher import Dispatcher
from dispatcher.options import DispatcherOptions
from tests.dispatcher.support import SCHEMA, TIMEOUT, TOKEN
from tests.dispatcher.whole import Mode, whole
from tests.etcd import TestEtcd
from tests.support import until

KINDS: list[tuple[RecordKind, str]] = [("subscription", "h1"), ("advertisement", "h2")]
MODES = pytest.mark.parametrize("mode", ["sna", "sea"])


async def bad_documents(etcd: Etcd) -> dict[str, bytes]:
    """One document of each kind that cannot be used."""
    good = new_space("odd", 500, SCHEMA, "legs", 2)
    found = {
        SPACES + "rubbish": b"\x00 rubbish",
        SPACES + "zero": encode(replace(good, name="zero", number=0)),
        SPACES + "minus": encode(replace(good, name="minus", number=-5)),
        SPACES + "huge": encode(replace(good, name="huge", number=99999)),
        SPACES + "version": encode(replace(good, name="version", versions={77: good.versions[0]})),
        SPACES + "current": encode(replace(good, name="current", current=2)),
        SPACES + "schema": encode(
            replace(good, name="schema", versions={0: replace(good.versions[0], schema={"x": 1})})
        ),
        SPACES + "shapes": encode(
            replace(good, name="shapes", versions={0: replace(good.versions[0], shapes=((9, 99),))})
        ),
        SPACES + "other": encode(replace(good, name="stocks")),
    }
    stored = await etcd.get(NETWORK)
    assert stored
    network = decode_network(stored.value)
    record = decode_record((await etcd.range("records/1/s")).items[0].value)
    assert isinstance(record, Record)
    under = f"records/{record.id[1:].partition('-')[0]}/"
    return {
        **found,
        under + "s1-1111111111111111": b"\x00 rubbish",
        under + "s1-2222222222222222": encode(record),  # another record's id
        under + "s1-3333333333333333": encode(
            replace(record, id="s1-3333333333333333", regions={0: b"123"})
        ),
        under + "s1-4444444444444444": encode(
            replace(record, id="s1-4444444444444444", host="h\n99")
        ),
        NETWORK: encode(replace(network, links=(), hosts=(*network.hosts, *network.hosts))),
    }


async def works(d: Dispatcher) -> None:
    """Requests are served in the space that is as it should be."""
    for kind, host in KINDS:
        [answer] = await d.begin(kind, [RecordSpec(host, "stocks", {})], wait=TIMEOUT)
        assert answer.status == 201, answer.problem


@MODES
async def test_all_processes_go_on_beside_bad_documents(etcd_server: TestEtcd, mode: Mode) -> None:
    async with whole(etcd_server.access(), mode=mode) as w, w.dispatcher() as d:
        await d.put_space("stocks", SCHEMA)
        await works(d)
        bad = await bad_documents(w.etcd)
        stored = await w.etcd.get(NETWORK)
        assert stored
        good = stored.value
        for key, value in bad.items():
            await w.etcd.put(key, value)

        async def reported() -> bool:
            named = {each.id for each in d.health().impaired if each.kind == "document"}
            return {key for key in bad if not key.startswith("records/")} <= named

        async def ready() -> bool:
            return d.health().ready

        await until(reported)
        await until(ready)
        assert [space.name for space in d.status.spaces()] == ["stocks"]
        await works(d)
        assert await w.check_flows(d)
        listed = {item.id for item in (await d.records("subscription")).items}
        assert not listed & {f"s1-{digit * 16}" for digit in "123"}
        # What is put right is not reported any longer.
        for key in bad:
            if not key.startswith("records/"):
                await (w.etcd.put(key, good) if key == NETWORK else w.etcd.delete(key))

        async def forgotten() -> bool:
            return not d.health().impaired

        await until(forgotten)


@MODES
async def test_processes_start_beside_bad_documents(etcd_server: TestEtcd, mode: Mode) -> None:
    access = etcd_server.access()
    async with whole(access, mode=mode) as w, w.dispatcher() as d:
        await d.put_space("stocks", SCHEMA)
        await works(d)
        bad = await bad_documents(w.etcd)
        for key, value in bad.items():
            if key != NETWORK:
                await w.etcd.put(key, value)
    # `whole` stores the network again; configurators load all records.
    async with (
        whole(access, mode=mode) as w,
        Dispatcher(access, TOKEN, DispatcherOptions(mode=mode)) as d,
    ):

        async def ready() -> bool:
            health = d.health()
            return health.ready and not [x for x in health.impaired if x.kind != "document"]

        await until(ready)
        documents = [each for each in d.health().impaired if each.kind == "document"]
        assert len(documents) == 9
        assert all(each.reason for each in documents)
        await works(d)
        assert await w.check_flows(d)
