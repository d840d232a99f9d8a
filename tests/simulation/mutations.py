"""Bugs on purpose, to see that the simulation finds them."""

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from msgspec import Struct

from configurators.partition import Worker
from configurators.slices import Queue
from dispatcher.catalogue import Catalogue
from dispatcher.gather import Gatherer
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


_guards = Catalogue.guards
_new_queue = Queue.__init__


class Mutation(Struct, frozen=True):
    """What is replaced, and within how many seeds that is found."""

    where: object
    name: str
    instead: Any
    seeds: int = 200


MUTATIONS: dict[str, Mutation] = {
    "settle-without-epochs": Mutation(Catalogue, "guards", _space_only, seeds=500),
    "no-fence": Mutation(Fence, "stale", lambda *_: False),
    "no-tombstones": Mutation(Queue, "__init__", _forgetful),
    "no-undo": Mutation(Worker, "_undo", _nothing_either),
    "no-reconciliation": Mutation(Shadow, "repair", lambda *_: []),
    "no-telling-again": Mutation(Gatherer, "connected", _nothing),
    "no-adoption": Mutation(Siblings, "_is_left_behind", lambda *_: False),
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
