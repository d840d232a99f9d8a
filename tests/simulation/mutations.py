"""Bugs on purpose, to see that the simulation finds them."""

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from msgspec import Struct

from configurators import loading
from configurators.holders import Holders
from configurators.messages import Raised, RaiseEpochs
from configurators.partition import Worker
from configurators.slices import Queue
from dispatcher.catalogue import Catalogue
from dispatcher.gather import Gatherer
from dispatcher.requests import Next, Operation
from dispatcher.siblings import Siblings
from sdn.southbound import Fence, Shadow


def _nothing(*_: Any) -> None:
    """Nothing is done."""


async def _nothing_either(*_: Any) -> None:
    """Nothing is done."""


def _space_only(self: Catalogue, space: Any) -> Any:
    return _guards(self, space)[:1]


def _forgetful(self: Queue, tombstones: int = 0) -> None:
    _new_queue(self, tombstones)


async def _raised(self: Holders, southbound: Any, epochs: Any) -> bool:
    answer = await self._ask(southbound, RaiseEpochs(dict(epochs)))
    if not isinstance(answer, Raised):
        return False
    for partition, reason in answer.stale.items():
        self._stale(partition, reason)
    return True


def _left_there(self: Operation) -> Next:
    self.latest.clear()
    return _withdraw(self)


_guards = Catalogue.guards
_new_queue = Queue.__init__
_withdraw = Operation.withdraw


class Mutation(Struct, frozen=True):
    """What is replaced, and within how many seeds that is found."""

    where: object
    name: str
    instead: Any
    seeds: int = 100


MUTATIONS: dict[str, Mutation] = {
    # What the design rests on.
    "settle-without-epochs": Mutation(Catalogue, "guards", _space_only),
    "no-fence": Mutation(Fence, "stale", lambda *_: False),
    "no-tombstones": Mutation(Queue, "__init__", _forgetful),
    "no-undo": Mutation(Worker, "_undo", _nothing_either),
    "no-reconciliation": Mutation(Shadow, "repair", lambda *_: []),
    "no-telling-again": Mutation(Gatherer, "connected", _nothing),
    "no-adoption": Mutation(Siblings, "_is_left_behind", lambda *_: False),
    "pending-is-loaded": Mutation(loading, "counts", lambda _: True),
    # What the simulation has found, taken out again.
    "former-owner-is-heard": Mutation(Operation, "outlived", lambda *_: False),
    "too-late-stays": Mutation(Operation, "withdraw", _left_there),
    "stale-loses-the-new": Mutation(Holders, "_raise", _raised),
}


@contextlib.contextmanager
def mutated(name: str) -> Iterator[None]:
    """The product with a bug built in; none if the name is empty."""
    if not name:
        yield
        return
    mutation = MUTATIONS[name]
    with mock.patch.object(mutation.where, mutation.name, mutation.instead):
        yield
