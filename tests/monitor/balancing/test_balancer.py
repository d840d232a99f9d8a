"""The balancer: who decides when, what is done of it, and what is told of it."""

import asyncio
from collections.abc import Callable, Collection, Sequence

import pytest
from msgspec import Struct
from msgspec.structs import replace

from configurators.environment import Clock
from configurators.store.etcd.client import Compare, Etcd, unchanged
from configurators.store.keys import LEADER
from configurators.store.model import MoveCause
from dzflow.errors import DzflowError
from monitor.balancing.balancer import Balancer, BalancerOptions, Mode, Observation
from monitor.balancing.policy import PastMove, ProposedMove, Situation
from monitor.leader import Leadership
from tests.etcd import TestEtcd
from tests.monitor.balancing.situations import NOW, part, situation
from tests.support import until

SEEN = situation(lambda _: [part("a", "c1"), part("b", "c1"), part("c", "c2")])
FENCE = unchanged(LEADER, 7)
MOVES = [ProposedMove("a", "c1", "c2", "why"), ProposedMove("b", "c1", "c2", "because")]


class Asked:
    """A policy that proposes what it was told to, and remembers what it was asked."""

    def __init__(self, moves: list[ProposedMove]) -> None:
        self.moves = moves
        self.situations: list[Situation] = []

    def propose(self, situation: Situation) -> list[ProposedMove]:
        self.situations.append(situation)
        return self.moves


class FakeLeader:
    """A leadership that the test decides on."""

    def __init__(self) -> None:
        self.leads = True

    @property
    def leader(self) -> str | None:
        return "d1" if self.leads else "d2"

    def fence(self) -> Compare:
        return FENCE

    async def wait_gained(self) -> None:
        await until(lambda: self.leads)


class FakeMover:
    """Moves nothing, but remembers what it should; `on_move` may say or do something else."""

    def __init__(self) -> None:
        self.moved: list[tuple[str, str, str]] = []
        self.guards: list[Sequence[Compare]] = []
        self.running: set[str] = set()
        self.on_move: Callable[[str], bool] = lambda _: True

    @property
    def moving(self) -> Collection[str]:
        return self.running

    async def move(
        self,
        partition: str,
        target: str,
        reason: str,
        cause: MoveCause,  # noqa: ARG002
        guards: Sequence[Compare],
    ) -> bool:
        self.moved.append((partition, target, reason))
        self.guards.append(guards)
        self.running.add(partition)
        try:
            await asyncio.sleep(0)
            return self.on_move(partition)
        finally:
            self.running.remove(partition)


class World(Struct):
    """A balancer and all that it is given."""

    balancer: Balancer
    leader: FakeLeader
    policy: Asked
    mover: FakeMover
    resting: list[str]  # why it rests, if not empty
    now: list[float]


def world(mode: Mode = "apply", moves: list[ProposedMove] = MOVES) -> World:
    leader, policy, mover = FakeLeader(), Asked(moves), FakeMover()
    resting: list[str] = []
    now = [NOW]
    balancer = Balancer(
        leader,
        policy,
        mover,
        lambda: Observation(SEEN.history, SEEN.owners, SEEN.targets),
        lambda: resting[0] if resting else None,
        BalancerOptions(mode=mode, policy="asked", period=0.01),
        Clock(wall=lambda: now[0]),
    )
    return World(balancer, leader, policy, mover, resting, now)


async def test_moves_are_made_one_after_another_in_mode_apply() -> None:
    it = world()
    await it.balancer.attend()
    assert it.mover.moved == [("a", "c2", "why"), ("b", "c2", "because")]
    assert it.balancer.status().past == (
        PastMove(NOW, "a", "c1", "c2", True),
        PastMove(NOW, "b", "c1", "c2", True),
    )


async def test_no_move_may_begin_in_etcd_after_the_term_of_the_leader() -> None:
    it = world()
    await it.balancer.attend()
    assert it.mover.guards == [[FENCE], [FENCE]]


async def test_the_policy_is_told_the_present_state_and_past_moves() -> None:
    it = world()
    await it.balancer.attend()
    await it.balancer.attend()
    first, second = it.policy.situations
    assert first == SEEN
    assert second == replace(SEEN, past=it.balancer.status().past[:2])


async def test_proposals_are_only_shown_in_mode_propose() -> None:
    it = world("propose")
    await it.balancer.attend()
    assert it.mover.moved == []
    decision = it.balancer.status().decision
    assert decision
    assert decision.moves == tuple(MOVES)
    assert decision.size
    assert (decision.at, decision.resting) == (NOW, None)


async def test_nothing_is_decided_in_mode_off_but_a_dry_run_is_possible() -> None:
    it = world("off")
    await it.balancer.attend()
    assert it.policy.situations == []
    assert it.balancer.status().decision is None
    assert it.balancer.dry_run().moves == tuple(MOVES)
    assert it.mover.moved == []


async def test_a_process_that_does_not_lead_decides_nothing_and_says_who_does() -> None:
    it = world()
    it.leader.leads = False
    await it.balancer.attend()
    assert it.mover.moved == []
    status = it.balancer.status()
    assert (status.leads, status.leader, status.decision) == (False, "d2", None)
    assert it.balancer.dry_run().moves == tuple(MOVES)


async def test_a_decision_is_not_shown_after_the_leadership_was_lost() -> None:
    it = world("propose")
    await it.balancer.attend()
    it.leader.leads = False
    assert it.balancer.status().decision is None


async def test_no_move_begins_after_the_leadership_was_lost() -> None:
    it = world()

    def lose(_: str) -> bool:
        it.leader.leads = False
        return True

    it.mover.on_move = lose
    await it.balancer.attend()
    assert [partition for partition, *_ in it.mover.moved] == ["a"]


async def test_the_balancer_rests_while_something_else_changes_partitions() -> None:
    it = world()
    it.resting.append("space quotes is being re-cut")
    await it.balancer.attend()
    assert it.policy.situations == []
    assert it.mover.moved == []
    decision = it.balancer.status().decision
    assert decision
    assert (decision.moves, decision.size) == ((), None)
    assert decision.resting == "space quotes is being re-cut"


async def test_no_move_begins_after_such_a_change_has_begun() -> None:
    it = world()

    def rest(_: str) -> bool:
        it.resting.append("the schema of quotes changes")
        return True

    it.mover.on_move = rest
    await it.balancer.attend()
    assert [partition for partition, *_ in it.mover.moved] == ["a"]


async def test_after_a_move_that_did_not_succeed_the_policy_is_asked_again() -> None:
    it = world()
    it.mover.on_move = lambda _: False
    await it.balancer.attend()
    assert len(it.mover.moved) == 1
    assert it.balancer.status().past == (PastMove(NOW, "a", "c1", "c2", False),)


async def test_a_move_that_is_refused_counts_as_not_done() -> None:
    it = world()

    def refuse(_: str) -> bool:
        raise DzflowError("c2 is dead; choose another configurator")

    it.mover.on_move = refuse
    await it.balancer.attend()
    assert it.balancer.status().past == (PastMove(NOW, "a", "c1", "c2", False),)
    assert it.balancer.status().moving == ()


async def test_running_moves_are_told_with_their_targets_as_far_as_they_are_known() -> None:
    it = world(moves=MOVES[:1])
    it.mover.running |= {"c", "gone"}  # by hand
    seen: list[Situation] = []

    def ask(_: str) -> bool:
        it.balancer.dry_run()
        seen.append(it.policy.situations[-1])
        assert it.balancer.status().moving == ("a", "c", "gone")
        return True

    it.mover.on_move = ask
    await it.balancer.attend()
    assert [each.moving for each in seen] == [{"a": "c2", "c": "c2"}]


async def test_past_moves_are_forgotten_after_an_hour() -> None:
    it = world("propose")
    it.balancer.note(PastMove(NOW, "a", "c1", "c2", True))
    it.now[0] += 3599
    it.balancer.dry_run()
    assert len(it.policy.situations[-1].past) == 1
    it.now[0] += 2
    it.balancer.dry_run()
    assert it.policy.situations[-1].past == ()
    assert it.balancer.status().past == ()


async def test_past_moves_are_bounded() -> None:
    it = world("off")
    for n in range(6_000):
        it.balancer.note(PastMove(NOW, f"p{n}", "c1", "c2", True))
    past = it.balancer.status().past
    assert len(past) == 5_000
    assert past[-1].partition == "p5999"


async def test_the_balancer_decides_again_and_again_until_it_is_cancelled() -> None:
    it = world("propose")
    running = asyncio.create_task(it.balancer.run())
    await until(lambda: len(it.policy.situations) >= 3)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_of_two_balancers_the_one_that_leads_acts_and_the_other_takes_over(
    etcd_server: TestEtcd,
) -> None:
    async with Etcd(etcd_server.access()) as etcd, asyncio.TaskGroup() as group:
        movers = [FakeMover(), FakeMover()]
        leaderships = [Leadership(etcd, "d1", ttl=600), Leadership(etcd, "d2", ttl=600)]
        for leadership, mover in zip(leaderships, movers, strict=True):
            balancer = Balancer(
                leadership,
                Asked(MOVES[:1]),
                mover,
                lambda: Observation(SEEN.history, SEEN.owners, SEEN.targets),
                lambda: None,
                BalancerOptions(mode="apply", period=0.01),
                Clock(),
            )
            group.create_task(balancer.run(), name="balancer")
        first = group.create_task(leaderships[0].run())
        await until(lambda: len(movers[0].moved) >= 3)
        second = group.create_task(leaderships[1].run())
        await until(lambda: leaderships[1].leader == "d1")
        assert movers[1].moved == []
        first.cancel()
        await until(lambda: len(movers[1].moved) >= 3)
        stopped = len(movers[0].moved)
        await until(lambda: len(movers[1].moved) >= 6)
        assert len(movers[0].moved) == stopped
        for task in asyncio.all_tasks():
            if task is second or task.get_name() == "balancer":
                task.cancel()
