"""Notices the end of every move, on every monitor: the next leader knows the moves of the last."""

from collections.abc import Callable

from msgspec import Struct

from configurators.store.model import Move
from dispatcher.knowledge.catalogue import Catalogue


class MoveEnded(Struct, frozen=True):
    """A move that has ended, as it stood in etcd last."""

    partition: str
    move: Move


class MoveEnds:
    """Calls `on_end` with each move whose document disappears from etcd."""

    def __init__(self, catalogue: Catalogue, on_end: Callable[[MoveEnded], None]) -> None:
        self._catalogue = catalogue
        self._on_end = on_end
        self._last: dict[str, Move] = {}
        catalogue.move_changed.subscribe(self._move_changed)

    def _move_changed(self, partition: str) -> None:
        known = self._catalogue.moves.get(partition)
        last = self._last.pop(partition, None)
        if known:
            self._last[partition] = known[0]
        if last and not (known and known[0].id == last.id):
            self._on_end(MoveEnded(partition, last))
