"""Event spaces: named schemas of attributes."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Literal, Self

from dzflow.attribute import (
    MAX_NAME,
    Attribute,
    BadSchema,
    MissingAttribute,
    UnknownAttribute,
    WrongType,
    checked_members,
    is_whole,
    near,
    safe_name,
    shown,
)
from dzflow.intervals import Key

MAX_ATTRIBUTES = 96
MAX_INDEX_WORK = 1 << 16  # budget times shapes: choosing shapes takes a few seconds then

_SPACE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class IndexSettings:
    """How a space is indexed: kind, most cells per filter, most shapes in its dictionary."""

    kind: Literal["fields", "zorder"] = "fields"
    budget: int = 8
    shapes: int = 64

    def __post_init__(self) -> None:
        if self.kind not in ("fields", "zorder"):
            text = f"index.kind must be fields or zorder, got {shown(self.kind)}"
            raise BadSchema(text, member="index.kind")
        for member, highest in (("budget", 1_024), ("shapes", 4_096)):
            value = getattr(self, member)
            if not is_whole(value, highest):
                text = f"index.{member} must be from 1 to {highest}, got {shown(value)}"
                raise BadSchema(text, member=f"index.{member}")
        if self.budget * self.shapes > MAX_INDEX_WORK:
            text = f"index.budget times index.shapes must be at most {MAX_INDEX_WORK}"
            raise BadSchema(f"{text}, got {self.budget * self.shapes}", member="index.shapes")


@dataclass(frozen=True)
class Space:
    """A named schema: what its events look like and how they are indexed."""

    name: str
    attributes: tuple[Attribute, ...]
    index: IndexSettings = IndexSettings()
    positions: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        name = self.name
        if not (isinstance(name, str) and len(name) <= MAX_NAME and _SPACE_NAME.fullmatch(name)):
            text = f"a space's name has letters, digits, _, . and -, at most {MAX_NAME}"
            raise BadSchema(f"{text}, got {shown(name)}", member="name")
        if not 1 <= len(self.attributes) <= MAX_ATTRIBUTES:
            text = f"a space has 1 to {MAX_ATTRIBUTES} attributes, got {len(self.attributes)}"
            raise BadSchema(text, member="attributes")
        positions: dict[str, int] = {}
        for i, attribute in enumerate(self.attributes):
            if positions.setdefault(attribute.name, i) != i:
                text = f"{attribute.name}: two attributes have this name"
                error = BadSchema(text, attribute.name, "name")
                error.index = i
                raise error
        object.__setattr__(self, "positions", positions)

    @classmethod
    def from_json(cls, name: str, obj: object) -> Self:
        """The space with this schema; BadSchema says what is wrong with it."""
        members = checked_members(obj, ("attributes", "index"), "space")
        given = members.get("attributes")
        if not isinstance(given, list | tuple) or len(given) > MAX_ATTRIBUTES:
            text = f"attributes must be a list of 1 to {MAX_ATTRIBUTES} objects"
            raise BadSchema(text, member="attributes")
        attributes = []
        for i, item in enumerate(given):
            try:
                attributes.append(Attribute.from_json(item))
            except BadSchema as error:
                error.index = i
                raise
        settings = checked_members(members.get("index", {}), ("kind", "budget", "shapes"), "index")
        return cls(name, tuple(attributes), IndexSettings(**settings))

    def to_json(self) -> dict[str, object]:
        """The schema in the form that `from_json` reads."""
        attributes = [attribute.to_json() for attribute in self.attributes]
        return {"attributes": attributes, "index": asdict(self.index)}

    def attribute(self, name: object) -> Attribute:
        """The attribute of this name; UnknownAttribute lists the names there are."""
        position = self.positions.get(name) if isinstance(name, str) else None
        if position is None:
            raise UnknownAttribute(partial(self._unknown_text, name), safe_name(name))
        return self.attributes[position]

    def _unknown_text(self, name: object) -> str:
        text = f"{self.name} has no attribute {shown(name)}; it has {', '.join(self.positions)}"
        return text + near(name, self.positions)

    def keys(self, event: Mapping[str, object]) -> tuple[Key, ...]:
        """The keys of an event in the order of the attributes; it must name them all."""
        if not isinstance(event, Mapping):
            raise WrongType(f"an event is an object, got {shown(event)}")
        if event.keys() != self.positions.keys():
            for name in event:
                self.attribute(name)
            missing = [name for name in self.positions if name not in event]
            text = f"the event lacks {', '.join(missing)}; it must name every attribute"
            raise MissingAttribute(text, missing[0])
        return tuple([attribute.key(event[attribute.name]) for attribute in self.attributes])
