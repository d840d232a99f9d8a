"""A small control plane for the SDK's tests: one engine per version of a space, without a store."""

import warnings
from functools import cache
from typing import Any, Protocol

from configurators.engine.engine import Engine
from configurators.engine.partials import Kind, Partial
from dzflow.address import PREFIX, Scope
from dzflow.errors import LossWarning
from dzflow.filters import parse_filter
from dzflow.index import Index, build_index
from dzflow.space import Space
from sdn.network.routes import Routes
from sdn.network.topologies import topology
from sdn.network.topology import Topology
from sdn.network.trees import spanning_trees
from sdn.tables.flows import Batch
from sdn.tables.pipeline import Pipeline
from sdn.tables.plans import make_plan

Json = dict[str, Any]
Answer = tuple[int, Any]  # status and body


class DataPlane(Protocol):
    """The switches."""

    async def open(self, network: Topology, pipeline: Pipeline) -> None:
        """Start the switches, and install the base entries."""

    async def close(self) -> None:
        """Stop the switches."""

    def apply(self, batch: Batch) -> None:
        """Carry flow operations out."""

    def endpoint(self, host: str) -> str | None:
        """Where applications reach an emulated host."""


class Version:
    """A space under one version of its index."""

    def __init__(self, space: Space, index: Index, engine: Engine) -> None:
        self.space = space
        self._index = index
        self.engine = engine

    def partial(self, record: Json, kind: Kind, source: Any) -> Partial:
        regions = self._index.regions(parse_filter(self.space, source))
        edge = regions if record["kind"] == "advertisement" else ()
        return Partial(kind, record["id"], record["host"], regions, edge)


class FakeControlPlane:
    """Spaces and records, and the tables that they need."""

    def __init__(self, network: str, trees: int, plane: DataPlane) -> None:
        self.topology = topology(network)
        self.pipeline = Pipeline().extended(self.topology)
        self.plane = plane
        self.spaces: dict[str, Json] = {}
        self.records: dict[str, Json] = {}
        self.refuse_records = ""  # the reason, if switches refuse all records
        self.late = 0  # how many requests from now on are answered before they are done
        self._trees = dict(enumerate(spanning_trees(self.topology, trees)))
        self._routes = Routes(self.topology, self._trees)
        self._versions: dict[str, dict[int, Version]] = {}
        self._last_id = 0

    # Spaces

    def put_space(self, name: str, schema: Any) -> Json:
        """Create a space, or install another version of it beside the old one."""
        known = self.spaces.get(name)
        number = known["number"] if known else len(self.spaces) + 1
        version = (known["version"] + 1) % 4 if known else 0
        authentication = schema.get("authentication", "none")
        schema = {member: schema[member] for member in schema if member != "authentication"}
        space = Space.from_json(name, schema)
        plan = make_plan(self._routes, self.pipeline, Scope(number, version))
        made = Version(space, _index(space, version), Engine(plan))
        for record in self.records.values():
            if record["space"] == name:
                kind = Kind.SUBSCRIBE if record["kind"] == "subscription" else Kind.ADVERTISE
                self._decide(made, made.partial(record, kind, record["filter"]))
        self._versions.setdefault(name, {})[version] = made
        self.spaces[name] = {
            "name": name,
            "number": number,
            "version": version,
            "prefix": PREFIX,
            "trees": sorted(self._trees),
            "authentication": authentication,
            **space.to_json(),
        }
        return self.spaces[name]

    def drop_version(self, name: str, version: int) -> None:
        dropped = self._versions[name].pop(version)
        for partial in dropped.engine.active():
            kind = Kind.UNADVERTISE if partial.kind is Kind.ADVERTISE else Kind.UNSUBSCRIBE
            self._decide(dropped, Partial(kind, partial.id, partial.host, (), ()))

    def set_trees(self, name: str, numbers: list[int]) -> Json:
        self.spaces[name] = {**self.spaces[name], "trees": numbers}
        return self.spaces[name]

    def entries(self) -> int:
        """How many entries beyond the base the switches have."""
        engines = [v.engine for versions in self._versions.values() for v in versions.values()]
        return sum(len(found) for engine in engines for found in engine.entries().values())

    # Records

    def begin(self, body: Any, kind: str) -> Answer:
        letter, request = ("s", Kind.SUBSCRIBE) if kind == "subscription" else ("a", Kind.ADVERTISE)
        if body["space"] not in self.spaces:
            return not_found(f"there is no space {body['space']}")
        number = self.spaces[body["space"]]["number"]
        self._last_id += 1
        record = {
            "id": f"{letter}{number:x}-{self._last_id:016x}",
            "kind": kind,
            "state": "active",
            "host": body["host"],
            "space": body["space"],
            "filter": body["filter"],
            "label": body.get("label"),
            "ttl": body.get("ttl"),
            "renewed": 0,
            "reason": None,
            "updating": False,
        }
        if self.refuse_records:
            return 502, {"title": "Failed", "status": 502, "detail": self.refuse_records}
        for version in self._versions[body["space"]].values():
            self._decide(version, version.partial(record, request, body["filter"]))
        self.records[record["id"]] = record
        if self.late:
            self.late -= 1
            return 202, {**record, "state": "pending"}
        return 201, record

    def end(self, name: str) -> Answer:
        record = self.records.get(name)
        if record is None:
            return not_found(f"there is no {name}")
        request = Kind.UNSUBSCRIBE if record["kind"] == "subscription" else Kind.UNADVERTISE
        for version in self._versions[record["space"]].values():
            self._decide(version, Partial(request, record["id"], record["host"], (), ()))
        del self.records[record["id"]]
        return 200, {**record, "state": "removed"}

    def update(self, name: str, source: Any) -> Answer:
        record = self.records[name]
        for version in self._versions[record["space"]].values():
            self._decide(version, version.partial(record, Kind.UPDATE, source))
        record["filter"] = source
        return 200, record

    def renew(self, name: str) -> Answer:
        if name not in self.records:
            return not_found(f"there is no {name}")
        self.records[name]["renewed"] += 1
        return 200, self.records[name]

    def select(self, kind: str, wanted: dict[str, str]) -> list[Json]:
        return [
            record
            for record in self.records.values()
            if record["kind"] == kind
            and all(record[name] == wanted.get(name, record[name]) for name in ("host", "space"))
        ]

    def _decide(self, version: Version, partial: Partial) -> None:
        decision = version.engine.decide([partial])
        for batch in decision.rounds:
            self.plane.apply(batch)
        version.engine.commit(decision)


def not_found(detail: str) -> Answer:
    return 404, {"title": "Not found", "status": 404, "detail": detail}


@cache
def _index(space: Space, version: int) -> Index:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LossWarning)
        return build_index(space, version)
