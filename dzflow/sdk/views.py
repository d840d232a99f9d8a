"""A space as publishers and subscribers see it: what it looks like, and where its events go."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

from msgspec import Struct

from dzflow.address import Scope
from dzflow.errors import BadInput
from dzflow.filters import Filter, parse_filter
from dzflow.index import FieldsIndex, Index, ZOrderIndex
from dzflow.intervals import Key
from dzflow.sdk.errors import BadAnswer
from dzflow.space import Space

_SPREAD = 0x9E3779B97F4A7C15  # odd, its bits well mixed: neighbouring ids go to different trees


class SpaceView(Struct, frozen=True, eq=False):
    """A space under the version of its index that publishers use now."""

    space: Space
    scope: Scope
    trees: tuple[int, ...]  # that can be used now
    index: Index

    @property
    def number(self) -> int:
        """The number of the space."""
        return self.scope.space

    @property
    def version(self) -> int:
        """The version of its index."""
        return self.scope.version

    @classmethod
    def from_json(cls, told: Mapping[str, Any], before: Self | None = None) -> Self:
        """Read a space as the API tells of it.

        If it says that no tree can be used, those from before stay: a broken tree still reaches
        some, and a new one is on its way.
        """
        try:
            schema = {"attributes": told["attributes"], "index": told["index"]}
            space = Space.from_json(told["name"], schema)
            scope = Scope(told["number"], told["version"], told["prefix"]).check()
            trees = tuple(sorted(int(tree) for tree in told["trees"]))
        except (BadInput, KeyError, TypeError, ValueError) as error:
            text = f"the control plane's description of a space cannot be read ({error!r})"
            raise BadAnswer(f"{text}; does the SDK have the same version?") from error
        if not trees:
            trees = before.trees if before else (0,)
        if before and (before.scope, before.space) == (scope, space):
            return cls(before.space, scope, trees, before.index)
        return cls(space, scope, trees, _index(space, scope.version))

    def address(self, keys: Sequence[Key], event_id: int) -> int:
        """Where an event goes; the tree follows from its id."""
        tree = self.trees[(event_id * _SPREAD >> 32) % len(self.trees)]
        return self.scope.event(self.index.point(keys), tree)


def _index(space: Space, version: int) -> Index:
    # Addresses of events do not depend on the dictionary of shapes, so none is needed.
    if space.index.kind == "zorder":
        return ZOrderIndex(space, version)
    return FieldsIndex(space, version, ())


class Expression:
    """A filter as it was given, read for one view of its space after the other."""

    def __init__(self, source: object) -> None:
        self.source = source
        self._read: dict[int, tuple[Space, Filter | None]] = {}  # by version of the index

    def filter(self, view: SpaceView) -> Filter | None:
        """The filter under a view; None if it means nothing there."""
        space, found = self._read.get(view.version, (None, None))
        if space is view.space:
            return found
        try:
            found = parse_filter(view.space, self.source)
        except BadInput:
            found = None
        self._read[view.version] = (view.space, found)
        return found
