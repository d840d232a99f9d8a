"""A space as publishers and subscribers use it: its schema, and the addresses of its events."""

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
_AUTHENTICATION = {"none": False, "tagged": True}


class SpaceView(Struct, frozen=True, eq=False):
    """A space under one version of its index, with the trees that publishers may use."""

    space: Space
    scope: Scope
    trees: tuple[int, ...]  # usable ones
    index: Index
    tagged: bool = False  # whether its events carry tags
    key: int = 0  # the number of the key that publishers use

    @property
    def number(self) -> int:
        """The number of the space."""
        return self.scope.space

    @property
    def version(self) -> int:
        """The version of its index."""
        return self.scope.version

    @classmethod
    def from_json(cls, described: Mapping[str, Any], before: Self | None = None) -> Self:
        """Read the API's description of a space.

        If the API says that no tree is usable, the view keeps the trees of `before`: a broken tree
        still reaches some hosts, and the control plane is about to announce a new one.
        """
        try:
            schema = {"attributes": described["attributes"], "index": described["index"]}
            space = Space.from_json(described["name"], schema)
            scope = Scope(described["number"], described["version"], described["prefix"]).check()
            trees = tuple(sorted(int(tree) for tree in described["trees"]))
            tagged = _AUTHENTICATION[described.get("authentication", "none")]
            key = int(described.get("key", 0))
        except (BadInput, KeyError, TypeError, ValueError) as error:
            text = f"cannot read the control plane's description of a space ({error!r})"
            raise BadAnswer(f"{text}; does the SDK have the same version?") from error
        if not trees:
            trees = before.trees if before else (0,)
        if before and (before.scope, before.space) == (scope, space):
            return cls(before.space, scope, trees, before.index, tagged, key)
        return cls(space, scope, trees, _index(space, scope.version), tagged, key)

    def address(self, keys: Sequence[Key], event_id: int) -> int:
        """The address of an event; its id selects the tree."""
        tree = self.trees[(event_id * _SPREAD >> 32) % len(self.trees)]
        return self.scope.event(self.index.point(keys), tree)


def _index(space: Space, version: int) -> Index:
    # The addresses of events do not depend on the dictionary of shapes.
    if space.index.kind == "zorder":
        return ZOrderIndex(space, version)
    return FieldsIndex(space, version, ())


class Expression:
    """A filter as the application wrote it, parsed once for each version of its space."""

    def __init__(self, source: object) -> None:
        self.source = source
        self._parsed: dict[int, tuple[Space, Filter | None]] = {}  # by version of the index

    def filter(self, view: SpaceView) -> Filter | None:
        """The filter under a view; None if it does not fit the view's schema."""
        space, found = self._parsed.get(view.version, (None, None))
        if space is view.space:
            return found
        try:
            found = parse_filter(view.space, self.source)
        except BadInput:
            found = None
        self._parsed[view.version] = (view.space, found)
        return found
