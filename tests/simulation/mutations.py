"""Bugs built in on purpose, to check that the simulation finds them."""

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from msgspec import Struct

from configurators.ownership import lock_take_over
from configurators.ownership.copy_source import CopySource
from configurators.ownership.lock_take_over import LockTakeOver
from configurators.ownership.moves import Moves
from configurators.ownership.partition_log import PartitionLog
from configurators.partition.followers import SpaceFollower
from configurators.partition.slices.pusher import DecisionPusher
from configurators.partition.tombstones import Tombstones
from configurators.southbound import process as southbound_process
from configurators.southbound.clients import SouthboundClients
from configurators.state.spaces import Spaces
from configurators.store.etcd.client import Compare
from configurators.store.locks import Lock, Locks
from dispatcher.changes import table_reuse
from dispatcher.changes.table_reuse import TableReuse
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.requests.adoption import Adoption
from dispatcher.requests.delivery.offers import OfferDelivery
from dispatcher.requests.delivery.push import PushDelivery
from dispatcher.requests.intake.planning import Planner
from sdn.driver import SwitchDriver
from sdn.fence import Fence, StaleEpoch
from sdn.network.topology import Topology
from sdn.tables.pipeline import Pipeline, SwitchNumbers
from sdn.tables.shadow import Shadow
from tests.simulation.world import Mode


def _nothing(*_: Any) -> None:
    """Do nothing."""


async def _nothing_either(*_: Any) -> None:
    """Do nothing."""


def _space_only(self: Catalogue, space: Any) -> Any:
    return _guards(self, space)[:1]


async def _declare_nothing(_: Any, workers: Any) -> Any:
    return dict.fromkeys(workers)


async def _lock_anyway(self: Locks, partition: str) -> Lock:
    """Everybody gets the lock, even if somebody else has it."""
    lease = await self._current()
    key = self._key(partition, lease)
    epoch = await self._etcd.put(key, self._who.encode(), lease.id)
    return Lock(partition, epoch, key, lease)


async def _claim_anything(self: Moves, gained: Any) -> Any:
    """Use every copy of a gained partition, however far it has come."""
    copies = self._target._copies
    return {name: copy for name in gained if (copy := copies.pop(name, None))}


async def _believe(_: Any, __: str, numbers: SwitchNumbers) -> SwitchNumbers:
    return numbers


def _unused(pipeline: Pipeline, topology: Topology, *_: Any) -> dict[str, SwitchNumbers]:
    return pipeline.unused(topology)


def _never(*_: Any) -> bool:
    return False


def _drop_instead(self: SpaceFollower, *given: Any) -> None:
    etcd, known, partitions, drop, _, changed = given
    _new_follower(self, etcd, known, partitions, drop, drop, changed)


async def _withdraw_unless_taken(
    _: Any, driver: SwitchDriver, __: str, name: str, revision: int
) -> None:
    with contextlib.suppress(StaleEpoch):
        await driver.withdraw(name, revision)


_new_follower = SpaceFollower.__init__
_guards = Catalogue.guards

Patch = tuple[object, str, Any]
"""Where something is replaced, its name, and by what."""


class Mutation(Struct, frozen=True):
    """What is replaced, the kinds of faults that it is to be found by, and the mode.

    The search begins with the seed `start`, shortly before one that shows the bug today.
    """

    patches: tuple[Patch, ...]
    faults: tuple[str, ...]
    mode: Mode = "sna"
    start: int = 0
    guests: bool = False  # whether hosts come and go


_UNFENCED: Patch = (Fence, "stale", lambda *_: False)

MUTATIONS: dict[str, Mutation] = {
    "settle-without-epochs": Mutation(
        ((Catalogue, "guards", _space_only),), ("owner usurped",), start=24
    ),
    "no-fence": Mutation((_UNFENCED,), ("owner usurped",)),
    "no-tombstones": Mutation(((Tombstones, "seq", lambda *_: -1),), ("stream slow",)),
    "no-undo": Mutation(((DecisionPusher, "_undo", _nothing_either),), ("switch refuses",)),
    "no-reconciliation": Mutation(((Shadow, "repair", lambda *_: []),), ("switch restarts",)),
    "no-telling-again": Mutation(
        ((PushDelivery, "connected", _nothing),), ("configurator killed",)
    ),
    "no-adoption": Mutation(
        ((Adoption, "is_abandoned", lambda *_: False),), ("dispatcher killed", "owner usurped")
    ),
    "copy-without-later-slices": Mutation(
        ((CopySource, "carried_out", _nothing_either),),
        ("partition moved", "stream slow"),
        start=24,
    ),
    "copy-without-proof": Mutation(
        ((Moves, "claim_copies", _claim_anything),), ("move disturbed", "owner changed"), start=10
    ),
    "settle-by-an-old-map": Mutation(
        ((Planner, "still_routed", lambda *_: True),), ("map changed", "watch slow"), start=137
    ),
    "resume-by-another-dictionary": Mutation(
        ((Planner, "_index_again", Planner._index),),
        ("shapes change disturbed", "stream slow", "watch slow"),
        start=196,
    ),
    "owners-of-gone-partitions": Mutation(
        ((SouthboundClients, "wait_for_spaces", _nothing_either), (Spaces, "recut", _never)),
        ("map changed", "map change disturbed", "watch slow"),
    ),
    "clear-gone-partitions": Mutation(
        ((SpaceFollower, "__init__", _drop_instead),), ("map changed",)
    ),
    "tables-in-use-freed": Mutation(
        (
            (TableReuse, "_find_vacant", _believe),
            (TableReuse, "_applied", lambda _: True),
            (table_reuse, "numbers_to_free", _unused),
        ),
        ("switch restarts", "switch hangs up", "southbound killed"),
        start=38,
        guests=True,
    ),
    "sea-withdraw-unless-taken": Mutation(
        ((southbound_process, "withdraw", _withdraw_unless_taken),),
        ("map changed", "map change heard late"),
        "sea",
        start=221,
    ),
    "sea-commits-without-lock": Mutation(
        ((Lock, "holds", Compare("nothing", 0)),), ("lock usurped",), "sea", start=13
    ),
    "sea-no-fence": Mutation((_UNFENCED,), ("lock usurped",), "sea"),
    # Figure 6.3 of the thesis.
    "sea-no-locks": Mutation(
        ((Locks, "try_lock", _lock_anyway), (Locks, "free", lambda *_: True), _UNFENCED),
        ("stream slow",),
        "sea",
    ),
    "sea-no-catching-up": Mutation(
        ((lock_take_over, "catch_up", _nothing),), ("lock passed on",), "sea"
    ),
    "sea-no-journal": Mutation(
        ((PartitionLog, "write", _nothing_either),), ("lock usurped",), "sea"
    ),
    "sea-no-comparison": Mutation(
        ((LockTakeOver, "_declare", _declare_nothing),), ("lock usurped",), "sea", start=25
    ),
    "sea-no-offering-again": Mutation(
        ((OfferDelivery, "offer_again", _nothing),), ("configurator killed",), "sea", start=21
    ),
}


@contextlib.contextmanager
def mutated(name: str) -> Iterator[None]:
    """The product with a bug built in; none if the name is empty."""
    if not name:
        yield
        return
    with contextlib.ExitStack() as stack:
        for where, what, instead in MUTATIONS[name].patches:
            stack.enter_context(mock.patch.object(where, what, instead))
        yield
