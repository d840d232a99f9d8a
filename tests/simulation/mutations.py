"""Bugs built in on purpose, to check that the simulation finds them."""

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from msgspec import Struct

from configurators.ownership import lock_take_over
from configurators.ownership.lock_take_over import LockTakeOver
from configurators.ownership.partition_log import PartitionLog
from configurators.partition.pusher import DecisionPusher
from configurators.partition.queue import Queue
from configurators.store.etcd.client import Compare
from configurators.store.locks import Lock, Locks
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.requests.adoption import Adoption
from dispatcher.requests.delivery.offers import OfferDelivery
from dispatcher.requests.delivery.push import PushDelivery
from sdn.fence import Fence
from sdn.shadow import Shadow
from tests.simulation.world import Mode


def _nothing(*_: Any) -> None:
    """Do nothing."""


async def _nothing_either(*_: Any) -> None:
    """Do nothing."""


def _space_only(self: Catalogue, space: Any) -> Any:
    return _guards(self, space)[:1]


def _forgetful(self: Queue, tombstones: int = 0) -> None:
    _new_queue(self, tombstones)


async def _declare_nothing(_: Any, workers: Any) -> Any:
    return dict.fromkeys(workers)


async def _lock_anyway(self: Locks, partition: str) -> Lock:
    """Everybody gets the lock, even if somebody else has it."""
    lease = await self._current()
    key = self._key(partition, lease)
    epoch = await self._etcd.put(key, self._who.encode(), lease.id)
    return Lock(partition, epoch, key, lease)


_guards = Catalogue.guards
_new_queue = Queue.__init__

Patch = tuple[object, str, Any]
"""Where something is replaced, its name, and by what."""


class Mutation(Struct, frozen=True):
    """What is replaced, the kinds of faults that it is to be found by, and the mode."""

    patches: tuple[Patch, ...]
    faults: tuple[str, ...]
    mode: Mode = "sna"


_UNFENCED: Patch = (Fence, "stale", lambda *_: False)

MUTATIONS: dict[str, Mutation] = {
    "settle-without-epochs": Mutation(((Catalogue, "guards", _space_only),), ("owner usurped",)),
    "no-fence": Mutation((_UNFENCED,), ("owner usurped",)),
    "no-tombstones": Mutation(((Queue, "__init__", _forgetful),), ("stream slow",)),
    "no-undo": Mutation(((DecisionPusher, "_undo", _nothing_either),), ("switch refuses",)),
    "no-reconciliation": Mutation(((Shadow, "repair", lambda *_: []),), ("switch restarts",)),
    "no-telling-again": Mutation(
        ((PushDelivery, "connected", _nothing),), ("configurator killed",)
    ),
    "no-adoption": Mutation(
        ((Adoption, "is_abandoned", lambda *_: False),), ("dispatcher killed", "owner usurped")
    ),
    "sea-commits-without-lock": Mutation(
        ((Lock, "holds", Compare("nothing", 0)),), ("lock usurped",), "sea"
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
        ((LockTakeOver, "_declare", _declare_nothing),), ("lock usurped",), "sea"
    ),
    "sea-no-offering-again": Mutation(
        ((OfferDelivery, "offer_again", _nothing),), ("configurator killed",), "sea"
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
