"""Asks the policy again and again, and keeps its proposals or carries them out.

Every API process has a balancer, but only that of the leader acts; see `monitor/leader.py`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from configurators.environment import Clock
from configurators.store.etcd.client import Compare
from configurators.store.model import MoveCause
from dzflow.errors import DzflowError
from monitor.balancing.draining import drain_by_queues
from monitor.balancing.policy import PastMove, Policy, ProposedMove, Situation
from monitor.balancing.shares import fill
from monitor.balancing.sizing import ProposedSize, SizingOptions, propose_size
from monitor.load.samples import Sample

log = logging.getLogger(__name__)

Mode = Literal["off", "propose", "apply"]

_KEEP = 3600.0  # seconds that past moves are kept
_KEEP_MOST = 5_000  # past moves


class Mover(Protocol):
    """Moves partitions."""

    @property
    def moving(self) -> Collection[str]:
        """The partitions that are moving now, also those that users or plans move."""

    async def move(
        self,
        partition: str,
        target: str,
        reason: str,
        cause: MoveCause,
        guards: Sequence[Compare],
    ) -> bool:
        """Move a partition; returns when that has ended, and whether the target owns it.

        It does not begin unless all `guards` hold in etcd.
        """


class Leader(Protocol):
    """Says whether this process is the one to act; see `Leadership`."""

    @property
    def leads(self) -> bool:
        """Whether this process leads."""

    @property
    def leader(self) -> str | None:
        """The process that leads, as far as is known."""

    def fence(self) -> Compare:
        """What holds in etcd as long as this process leads; an error if it does not lead."""

    async def wait_gained(self) -> None:
        """Return when this process leads."""


class Observation(Struct, frozen=True):
    """What the balancer is told of the control plane."""

    history: Sequence[Sample]  # as in `Situation`; it does not change
    owners: Mapping[str, str]  # the configurator of each partition
    targets: Collection[str]  # configurators that are alive and not leaving


class BalancerOptions(Struct, frozen=True):
    """How the balancer works."""

    mode: Mode = "propose"
    policy: str = "predictive"  # the name of the policy, for the status
    period: float = 5.0  # seconds between decisions
    sizing: SizingOptions = SizingOptions()


class Decision(Struct, frozen=True):
    """What the policies would do now."""

    at: float  # seconds since 1970
    moves: tuple[ProposedMove, ...]
    size: ProposedSize | None  # None while the balancer rests
    resting: str | None  # why nothing moves at present, if so


class BalancerStatus(Struct, frozen=True):
    """What the balancer of this process does. Only that of the leader decides."""

    mode: Mode
    policy: str
    leads: bool
    leader: str | None  # the process that leads, as far as is known
    decision: Decision | None  # the last one; None if this process does not decide
    moving: tuple[str, ...]
    past: tuple[PastMove, ...]  # of the last hour, as far as this process knows; the oldest first


class Balancer:
    """Balances the load of configurators while `run` runs and this process leads.

    `observe` tells the present state; `resting` names a reason why nothing may move now (a re-cut
    or a change of schema), or is None.
    """

    def __init__(
        self,
        leader: Leader,
        policy: Policy,
        mover: Mover,
        observe: Callable[[], Observation],
        resting: Callable[[], str | None],
        options: BalancerOptions,
        clock: Clock,
    ) -> None:
        self._leader = leader
        self._policy = policy
        self._mover = mover
        self._observe = observe
        self._resting = resting
        self._options = options
        self._clock = clock
        self._decision: Decision | None = None
        self._past: deque[PastMove] = deque(maxlen=_KEEP_MOST)
        self._own: dict[str, str] = {}  # the target of each move that this balancer carries out

    async def run(self) -> None:
        """Decide once per period while this process leads, until cancelled."""
        while True:
            await self._leader.wait_gained()
            try:
                await self.attend()
            except Exception:
                # What a policy cannot cope with now must not end balancing for good.
                log.exception("the load cannot be balanced now")
            await asyncio.sleep(self._options.period)

    async def attend(self) -> None:
        """Decide, and carry that out if the mode is `apply`; returns when all moves have ended.

        In every mode, configurators that leave are drained, and those that are new get their share.
        """
        if not self._leader.leads:
            return
        if self._resting() is None:
            situation = self._situation()
            if draining := drain_by_queues(situation):
                await self._carry_out(draining, "draining")
            else:
                await self._carry_out(fill(situation), "filling")
        if self._options.mode == "off" or not self._leader.leads:
            return
        self._decision = self.dry_run()
        if self._options.mode == "apply":
            await self._carry_out(self._decision.moves, "balancer")

    def dry_run(self) -> Decision:
        """What the policies would do now, with reasons; nothing is done. For any process."""
        situation = self._situation()
        resting = self._resting()
        if resting is not None:
            return Decision(situation.now, (), None, resting)
        moves = tuple(self._policy.propose(situation))
        return Decision(situation.now, moves, propose_size(situation, self._options.sizing), None)

    def note(self, move: PastMove) -> None:
        """Remember a move that has ended, so that its partition rests.

        The balancer remembers its own moves by itself.
        """
        if move.partition not in self._own:
            self._past.append(move)

    def status(self) -> BalancerStatus:
        """What this balancer does."""
        leads = self._leader.leads
        return BalancerStatus(
            self._options.mode,
            self._options.policy,
            leads,
            self._leader.leader,
            self._decision if leads else None,
            tuple(sorted(self._mover.moving)),
            tuple(self._past),
        )

    # What is done

    async def _carry_out(self, moves: Sequence[ProposedMove], cause: MoveCause) -> None:
        """Make one move after another, as long as nothing speaks against it."""
        for move in moves:
            if not self._leader.leads or self._resting() is not None:
                return
            if not await self._move(move, cause):
                return  # the next decision takes into account what has happened

    async def _move(self, move: ProposedMove, cause: MoveCause) -> bool:
        log.info("%s moves from %s to %s: %s", *_names(move), move.reason)
        done = False
        self._own[move.partition] = move.target
        try:
            lead = self._leader.fence()
            done = await self._mover.move(move.partition, move.target, move.reason, cause, [lead])
        except DzflowError as error:
            log.warning("%s cannot move from %s to %s: %s", *_names(move), error)
        finally:
            del self._own[move.partition]
        self.note(PastMove(self._clock.wall(), *_names(move), done))
        return done

    def _situation(self) -> Situation:
        now = self._clock.wall()
        while self._past and self._past[0].at <= now - _KEEP:
            self._past.popleft()
        seen = self._observe()
        # Where a partition goes that somebody else moves is not known: it counts at its owner.
        moving = {
            name: self._own.get(name, seen.owners[name])
            for name in self._mover.moving
            if name in seen.owners
        }
        return Situation(now, seen.history, seen.owners, seen.targets, tuple(self._past), moving)


def _names(move: ProposedMove) -> tuple[str, str, str]:
    return move.partition, move.source, move.target
