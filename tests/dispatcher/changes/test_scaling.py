"""How many workers are wanted: who gets partitions, and what counts as a failure."""

import pytest

from configurators.store.documents import Delays, decode_wanted, encode
from configurators.store.etcd.client import Etcd
from configurators.store.keys import (
    CONFIGURATORS,
    DELAYS,
    NUMBERS,
    OWNERS,
    RAY,
    owner_key,
    wanted_key,
)
from configurators.store.model import Process, Wanted
from dispatcher.dispatcher import Dispatcher
from dispatcher.errors import Conflict
from dispatcher.options import Limit
from dispatcher.views import ConfiguratorView
from tests.dispatcher.support import SCHEMA, FakeConfigurator, world
from tests.etcd import TestEtcd
from tests.support import until


async def manage(etcd: Etcd) -> None:
    """As if a process placed workers."""
    await etcd.put(RAY, encode(Process("ray", "here", 1, "here")))


async def want(etcd: Etcd, count: int) -> None:
    await etcd.put(wanted_key("configurators"), encode(Wanted(count)))


def configurator(d: Dispatcher, id: str) -> ConfiguratorView:
    """How a configurator is shown; as down if it is not."""
    return d.status.configurator(id)


async def owners(etcd: Etcd, space: int) -> set[str]:
    """The owners of the partitions of a space."""
    page = await etcd.range(f"{OWNERS}{space:x}.")
    return {item.value.decode() for item in page.items}


async def test_a_limit_of_the_settings_is_kept(etcd_server: TestEtcd) -> None:
    limit = Limit(1, "ONOS knows no masters")
    async with (
        world(etcd_server.access()) as w,
        w.dispatcher(southbound_limit=limit) as d,
    ):
        await manage(w.etcd)
        with pytest.raises(Conflict, match="1 at the most: ONOS knows no masters"):
            await d.scaling.scale("southbound", 2)
        assert (await d.scaling.scale("southbound", 1)).wanted == 1
        assert (await d.scaling.scale("configurators", 2)).wanted == 2


async def test_a_call_keeps_what_the_settings_named_last(etcd_server: TestEtcd) -> None:
    """So that the same settings do not undo the call at the next start."""
    async with world(etcd_server.access()) as w, w.dispatcher() as d:
        await manage(w.etcd)
        await w.etcd.put(wanted_key("configurators"), encode(Wanted(2, given=2)))
        assert (await d.scaling.scale("configurators", 3)).wanted == 3
        stored = await w.etcd.get(wanted_key("configurators"))
        assert stored is not None
        assert decode_wanted(stored.value) == Wanted(3, given=2)


async def test_the_partitions_of_new_spaces_go_to_configurators_that_stay(
    etcd_server: TestEtcd,
) -> None:
    async with (
        world(etcd_server.access()) as w,
        FakeConfigurator(w.access, "c7"),
        w.dispatcher() as d,
    ):
        await until(lambda: configurator(d, "c7").state == "up")
        alive = {view.id for view in d.status.configurators()}
        await w.etcd.put(f"{NUMBERS}1", b"stocks")
        await want(w.etcd, 6)
        made = await d.put_space("new", SCHEMA)
        assert await owners(w.etcd, made.number) == alive - {"c7"}
        await want(w.etcd, 7)
        await until(lambda: d.scaling.view("configurators").wanted == 7)
        made = await d.put_space("newer", SCHEMA)
        assert await owners(w.etcd, made.number) == alive


async def test_a_new_space_has_partitions_for_all_configurators_that_are_wanted(
    etcd_server: TestEtcd,
) -> None:
    async with (
        world(etcd_server.access()) as w,
        w.dispatcher(partitions=None, partitions_per_configurator=2) as d,
    ):
        await w.etcd.put(f"{NUMBERS}1", b"stocks")
        await want(w.etcd, 8)
        await until(lambda: d.scaling.view("configurators").wanted == 8)
        assert (await d.put_space("new", SCHEMA)).partitions > 8, "not of the two that are there"


async def test_a_configurator_that_leaves_or_has_left_is_no_failure(etcd_server: TestEtcd) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher() as d:
        async with FakeConfigurator(w.access, "c7"):
            await until(lambda: configurator(d, "c7").state == "up")
            await w.etcd.put(owner_key("9.0/a"), b"c7")
            await want(w.etcd, 6)
            delays: Delays = {"configurators": {"c7": "it owns 1 partition (9.0/a)"}}
            await w.etcd.put(DELAYS, encode(delays))
            await until(lambda: configurator(d, "c7").reason == "it owns 1 partition (9.0/a)")
            await until(lambda: configurator(d, "c7").leaving)
            (part,) = [part for part in d.health().configurators if part.name == "c7"]
            assert part.ok
            assert part.reason == "it leaves: it owns 1 partition (9.0/a)"
        # It is gone while it still owns something: its partition is impaired, not the process.
        await until(lambda: configurator(d, "c7").state == "down")
        impaired = {(each.kind, each.id) for each in d.health().impaired}
        assert ("partition", "9.0/a") in impaired
        assert ("process", "c7") not in impaired
        await w.etcd.delete(owner_key("9.0/a"))
        await until(lambda: "c7" not in {view.id for view in d.status.configurators()})
        assert "c7" not in {part.name for part in d.health().configurators}


async def test_leaving_configurators_alone_cannot_be_used_if_they_are_not_up(
    etcd_server: TestEtcd,
) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher() as d:
        await until(lambda: all(view.state == "up" for view in d.status.configurators()))
        await want(w.etcd, 1)
        stored = (await w.etcd.range(CONFIGURATORS)).items
        assert stored
        for item in stored:
            await w.etcd.delete(item.key)
        await until(lambda: "no configurator can be used" in d.health().reasons)


async def test_configurators_that_have_not_started_yet_are_missed(etcd_server: TestEtcd) -> None:
    async with world(etcd_server.access()) as w, w.dispatcher() as d:

        def missed() -> list[str]:
            return [each.reason for each in d.health().impaired if each.id == "configurators"]

        await until(lambda: len(d.status.configurators()) == 2)
        assert missed() == []
        await want(w.etcd, 3)
        await until(lambda: missed() == ["2 of 3 have started"])
        assert not any("configurator" in reason for reason in d.health().reasons)
        async with FakeConfigurator(w.access, "c3"):
            await until(lambda: missed() == [])
