"""Configurators that die or sleep: others go on with their partitions, and they change nothing."""

from msgspec.structs import replace

from configurators.ownership.take_over import Orphans
from configurators.process import ConfiguratorOptions
from configurators.store.documents import encode
from configurators.store.keys import wanted_key
from configurators.store.model import Wanted
from configurators.streams.messages import Tasks
from tests.configurators.cluster import Cluster, cluster
from tests.etcd import TestEtcd

OPTIONS = ConfiguratorOptions(
    tune_gc=False,
    load_every_s=0.2,
    lease_s=2,
    take_over_after_s=1.0,  # time to register again, for one that stood still for a moment
    take_over_first_s=3.0,
)
# Those that live on: if they stood still for a moment, the others must not take them for dead.
SURVIVOR = replace(OPTIONS, lease_s=20)


def orphans(me: str, alive: str = "abc", owned: int = 30) -> Orphans:
    """Partitions 0 to 29, each third of a, b and c."""
    found = Orphans(me, grace=2.0, first_grace=10.0, now=0.0)
    for name in alive:
        found.came(name)
    for n in range(owned):
        found.owned(str(n), "abc"[n % 3], n + 1)
    return found


def test_nothing_is_taken_over_while_all_are_alive() -> None:
    seen = orphans("a")
    assert not seen.any
    assert seen.due(1000.0) == {}


def test_live_configurators_share_the_partitions_of_a_dead_one() -> None:
    both = [orphans("a"), orphans("b")]
    for seen in both:
        seen.went("c", 100.0)
        assert seen.any
        assert seen.due(101.9) == {}
    first, second = (seen.due(102.0) for seen in both)
    assert first.keys() | second.keys() == {str(n) for n in range(2, 30, 3)}
    assert not first.keys() & second.keys()
    assert len(first) == len(second) == 5
    assert all(owner == "c" for owner, _ in first.values())


def test_a_configurator_that_comes_back_in_time_keeps_its_partitions() -> None:
    seen = orphans("a")
    seen.went("c", 100.0)
    seen.came("c")
    assert seen.due(1000.0) == {}


def test_the_first_configurator_to_start_does_not_take_everything() -> None:
    seen = orphans("a", alive="a")
    assert seen.due(9.9) == {}
    seen.came("b")
    assert {owner for owner, _ in seen.due(10.0).values()} == {"c"}


def test_a_configurator_that_others_consider_dead_takes_nothing() -> None:
    seen = orphans("a")
    seen.went("c", 100.0)
    seen.went("a", 100.0)
    assert seen.due(200.0) == {}


def test_configurators_that_leave_take_nothing_over_while_others_live() -> None:
    seen = {me: numbered(me, "123") for me in ("c1", "c2", "c3")}
    for each in seen.values():
        each.went("c3", 100.0)
        each.wanted = 1
    assert seen["c2"].due(200.0) == {}
    assert seen["c1"].due(200.0).keys() == {"2", "5"}
    seen["c2"].went("c1", 100.0)
    assert seen["c2"].due(200.0).keys() == {"0", "3", "2", "5"}, "it is the only one that lives"


def numbered(me: str, alive: str) -> Orphans:
    """Partitions 0 to 5, each third of c1, c2 and c3."""
    found = Orphans(me, grace=2.0, first_grace=10.0, now=0.0)
    for number in alive:
        found.came(f"c{number}")
    for n in range(6):
        found.owned(str(n), f"c{n % 3 + 1}", n + 1)
    return found


def partitions(it: Cluster, name: str) -> set[str]:
    return {part.partition for part in it.loads[name].partitions}


async def test_a_configurator_paused_for_longer_than_its_lease_changes_nothing_when_it_resumes(
    etcd_server: TestEtcd,
) -> None:
    async with cluster(etcd_server.access()) as it, it.child("c1", OPTIONS) as c1:
        await it.ready("c1")
        await it.do(it.advertise("x < 100"), *(it.subscribe(f"x < {n}") for n in range(9, 19)))
        async with it.configurator("c2", SURVIVOR):
            c1.pause()
            # What it is told now it works on when it wakes, before it hears anything else.
            late = it.tasks([it.subscribe(f"y < {n}") for n in range(40, 60)])
            it.streams["c1"].tell(Tasks(late))
            await it.ready("c2")
            it.check()
            assert {d.outcome for d in await it.do(it.subscribe("x > 7"), id="c2")} == {"done"}
            it.check()
            c1.resume()
            asked = {(p, t.id, t.seq) for p, some in late.items() for t in some}
            await it.until(lambda: asked <= it.dones.keys())
            assert {it.dones[key].outcome for key in asked} == {"moved"}
            await it.until(lambda: not partitions(it, "c1"))
            it.check()
            # It is alive again, and can be given something.
            await it.registered("c1")
            await it.own("c1")
            await it.ready("c1")
            it.check()


async def test_the_partitions_of_a_killed_configurator_are_spread_over_the_others(
    etcd_server: TestEtcd,
) -> None:
    async with cluster(etcd_server.access(), partitions=9) as it, it.child("c1", OPTIONS) as c1:
        await it.ready("c1")
        await it.do(it.advertise("x < 100"), *(it.subscribe(f"x < {n}") for n in range(9, 49)))
        async with it.configurator("c2", SURVIVOR), it.configurator("c3", SURVIVOR):
            await it.until(lambda: {"c2", "c3"} <= it.loads.keys())
            c1.kill()
            names = set(it.space.partitions())
            await it.until(
                lambda: (
                    partitions(it, "c2") | partitions(it, "c3") == names
                    and all(
                        part.state == "ready"
                        for name in ("c2", "c3")
                        for part in it.loads[name].partitions
                    )
                )
            )
            assert not partitions(it, "c2") & partitions(it, "c3")
            # Equal parts if both are equally fast, see above; whoever is late gets less.
            assert partitions(it, "c2")
            assert partitions(it, "c3")
            it.check()


async def test_tasks_for_an_older_epoch_are_sent_back(etcd_server: TestEtcd) -> None:
    async with cluster(etcd_server.access()) as it, it.configurator("c1", OPTIONS):
        await it.ready("c1")
        epochs = {part.partition: part.epoch for part in it.loads["c1"].partitions}
        before = {name: epoch - 1 for name, epoch in epochs.items()}
        # The record may have ended meanwhile; then nobody would ever remove the request again.
        late = it.tasks([it.subscribe("x < 9")])
        answers = await it.send(late, epochs=before)
        assert {done.outcome for done in answers} == {"moved"}
        it.check()
        assert {done.outcome for done in await it.send(late, epochs=epochs)} == {"done"}


async def test_partitions_of_a_dead_configurator_do_not_go_to_one_that_leaves(
    etcd_server: TestEtcd,
) -> None:
    async with cluster(etcd_server.access(), partitions=5) as it, it.child("c1", OPTIONS) as c1:
        await it.ready("c1")
        await it.etcd.put(wanted_key("configurators"), encode(Wanted(2)))
        # The one that stays comes first: whatever happens to c1, c3 is never alone.
        async with it.configurator("c2", SURVIVOR), it.configurator("c3", SURVIVOR):
            await it.until(lambda: {"c2", "c3"} <= it.loads.keys())
            c1.kill()
            await it.ready("c2")
            assert partitions(it, "c2") == set(it.space.partitions())
            assert not partitions(it, "c3")
