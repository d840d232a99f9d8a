"""Random spaces, filters and events from a seed, and the expected receivers."""

from collections.abc import Iterable
from random import Random
from typing import Any

from configurators.engine.partials import Request
from dzflow.filters import Filter, parse_filter
from dzflow.index import Index, build_index
from dzflow.region import Region
from dzflow.space import Space
from sdn.tables.pipeline import PlanName

Event = dict[str, Any]
Json = dict[str, Any]

_NUMBERS = 1 << 30
_WORDS = ("ACME", "AMD", "BETA", "CERN", "ZETA", "übung")


def make_schema(random: Random, plan: PlanName) -> Json:
    """A schema with two to four attributes of any type, and `n` by which events are known."""
    kinds: list[Json] = [
        {"type": "int", "min": 0, "max": 1000},
        {"type": "float", "min": -50, "max": 50},
        {"type": "enum", "values": list("abcdefg")},
        {"type": "bool"},
        {"type": "string"},
    ]
    chosen = random.sample(kinds, random.randint(2, 4))
    attributes = [{"name": f"x{i}", **kind} for i, kind in enumerate(chosen)]
    attributes.append({"name": "n", "type": "int", "min": 0, "max": _NUMBERS, "bits": 1})
    index = {"kind": "fields" if plan == "legs" else "zorder", "budget": 6}
    return {"attributes": attributes, "index": index}


class World:
    """A space and what is known of its events."""

    def __init__(self, name: str, schema: Json, random: Random) -> None:
        self.name = name
        self.schema = schema
        self.space = Space.from_json(name, schema)
        self._random = random
        self._attributes: list[Json] = schema["attributes"][:-1]
        self._next = 0

    def index(self, version: int) -> Index:
        """The index that turns events into patterns; these do not depend on the dictionary."""
        return build_index(self.space, version, shapes=())

    def filter(self) -> Json:
        """Any filter with up to two conditions."""
        count = self._random.choice((0, 1, 1, 1, 2, 2))
        chosen = self._random.sample(self._attributes, min(count, len(self._attributes)))
        return {attribute["name"]: self._condition(attribute) for attribute in chosen}

    def _condition(self, attribute: Json) -> Json:
        random = self._random
        low, high = (self._value(attribute) for _ in range(2))
        if attribute["type"] in ("int", "float"):
            return {"gte": min(low, high), "lte": max(low, high)}
        if attribute["type"] == "string":
            return random.choice(({"eq": low}, {"prefix": low[:1]}, {"in": [low, high]}))
        return {"eq": low} if attribute["type"] == "bool" else {"in": [low, high]}

    def _value(self, attribute: Json) -> Any:
        random = self._random
        match attribute["type"]:
            case "int":
                return random.randint(attribute["min"], attribute["max"])
            case "float":
                return round(random.uniform(attribute["min"], attribute["max"]), 3)
            case "enum":
                return random.choice(attribute["values"])
            case "bool":
                return random.random() < 0.5
        return random.choice(_WORDS)

    def event(self) -> Event:
        """Any event, with a number that none before it has."""
        self._next += 1
        found = {a["name"]: self._value(a) for a in self._attributes}
        return {**found, "n": self._next}

    def events(self, count: int, within: Json) -> list[Event]:
        """Events that match a filter; fewer if it is hard to find any."""
        advertised = self.parsed(within)
        drawn = (self.event() for _ in range(count * 40))
        found = [event for event in drawn if self.matches(advertised, event)]
        return found[:count]

    def base(self, room: int) -> int:
        """The first of so many numbers that no other event will have."""
        self._next += room
        return self._next - room

    def parsed(self, source: Json) -> Filter:
        """The filter, ready for `matches`."""
        return parse_filter(self.space, source)

    def matches(self, wanted: Filter, event: Event) -> bool:
        """Whether an event matches, exactly."""
        return wanted.matches(self.space.keys(event))


def requests(records: Iterable[Json]) -> list[Request]:
    """Records as REST shows them, for the oracle."""
    return [
        Request(
            record["kind"] == "advertisement",
            record["id"],
            record["host"],
            tuple(Region.parse(text) for text in record["regions"]),
        )
        for record in records
    ]
