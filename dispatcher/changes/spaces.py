"""Makes, changes and deletes spaces, as callers ask for it."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import cast, get_args

from msgspec.structs import replace

from configurators.state.spaces import (
    LoadedSpace,
    new_space,
    new_version,
    same_schema,
    with_shapes,
)
from configurators.state.wanted import read_count, staying
from configurators.store.documents import decode_plan, decode_space, encode
from configurators.store.etcd.client import (
    Compare,
    Delete,
    Etcd,
    Op,
    Put,
    absent,
    none_newer,
    unchanged,
)
from configurators.store.keys import (
    NUMBERS,
    RECORDS,
    SPACES,
    history_of,
    moves_of_space,
    owner_key,
    owners_of_space,
    plan_key,
    wanted_key,
)
from configurators.store.model import Authentication, SpaceDoc
from dispatcher.changes.event_keys import first_key, next_key, no_key
from dispatcher.changes.index_change import IndexChanges, newer_version
from dispatcher.errors import Conflict, NotFound, Unavailable
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.knowledge.fleet import Fleet
from dispatcher.knowledge.workers import Workers
from dispatcher.options import DispatcherOptions
from dzflow.address import MAX_SPACE
from dzflow.attribute import BadSchema, shown
from dzflow.index import Shape
from sdn.tables.pipeline import PlanName

_TRIES = 10
_AT_ONCE = 100  # keys in one transaction
_NAMED = 20  # records that an error lists
_NUMBER_REST = 120  # seconds before the number of a deleted space is used again
_CONFIGURATORS = wanted_key("configurators")


class SpaceChanges:
    """Makes, changes and deletes spaces."""

    def __init__(
        self,
        etcd: Etcd,
        me: str,
        options: DispatcherOptions,
        catalogue: Catalogue,
        fleet: Fleet,
        workers: Workers,
        index_changes: IndexChanges,
        new_id: Callable[[int], str],
    ) -> None:
        self._etcd = etcd
        self._me = me
        self._options = options
        self._catalogue = catalogue
        self._fleet = fleet
        self._workers = workers
        self._index_changes = index_changes
        self._new_id = new_id

    async def put(self, name: str, schema: object) -> LoadedSpace:
        """Make a space or change its schema; returns when publishers are told of it.

        BadInput if the schema is not valid, Conflict if it is being changed already or if filters
        do not fit, Failed if switches refuse it, Unavailable if no configurator is alive. A space
        keeps its `authentication` if the schema does not name it.
        """
        schema, wanted = split_authentication(schema)
        for _ in range(_TRIES):
            stored = await self._etcd.get(SPACES + name)
            if stored is None:
                if await self._create(name, schema, wanted or "none"):
                    return await self._known(name)
                continue
            doc = decode_space(stored.value)
            if not await asyncio.to_thread(same_schema, doc, schema):
                if await self._change(doc, stored.revision, schema):
                    await self._index_changes.wait_until_announced(name)
                    if wanted in (None, doc.authentication):
                        return await self._known(name)
                continue
            await self._index_changes.wait_until_announced(name)
            if wanted in (None, doc.authentication):
                return await self._known(name)
            await self._set_authentication(doc, stored.revision, wanted)
        raise Unavailable(f"other calls are changing {name!r} at the same time; try again")

    async def put_shapes(self, name: str, version: int, shapes: Iterable[Shape]) -> LoadedSpace:
        """Give a space another dictionary of shapes; its records are indexed again afterwards.

        They were chosen for a `version`. BadInput if they do not fit, NotFound, Conflict if the
        space has another version or its schema is being changed. With the shapes that it has, only
        records are indexed again that have other regions.
        """
        shapes = tuple(shapes)
        for _ in range(_TRIES):
            stored = await self._etcd.get(SPACES + name)
            if stored is None:
                raise NotFound(f"there is no space {name[:64]!r}")
            doc = decode_space(stored.value)
            if version != doc.current:
                raise Conflict(
                    f"the shapes are for version {version} of {name!r}, and it has version"
                    f" {doc.current} by now; learn them again"
                )
            changed = await asyncio.to_thread(with_shapes, doc, shapes)
            if len(doc.versions) > 1:
                raise Conflict(f"the schema of {name!r} is being changed; try again later")
            # Other processes build the index when they hear of it; here it is built by a thread.
            await asyncio.to_thread(LoadedSpace.of, changed)
            as_planned = await self._check_no_plan(doc)
            compares = [unchanged(SPACES + name, stored.revision), as_planned]
            put = Put(SPACES + name, encode(replace(changed, by=doc.by or self._me)))
            if (await self._etcd.transact(compares, [put])).succeeded:
                self._index_changes.drive(name)
                return await self._known(name)
        raise Unavailable(f"other calls are changing {name!r} at the same time; try again")

    async def delete(self, name: str) -> LoadedSpace:
        """Delete a space, returned as it was; NotFound, or Conflict while records are in it."""
        for _ in range(_TRIES):
            stored = await self._etcd.get(SPACES + name)
            if stored is None:
                raise NotFound(f"there is no space {name[:64]!r}")
            doc = decode_space(stored.value)
            if doc.by:
                raise Conflict(f"{name!r} is being changed; try again later")
            as_planned = await self._check_no_plan(doc)
            under = f"{RECORDS}{doc.number:x}/"
            page = await self._etcd.range(under, limit=_NAMED)
            if page.items:
                ids = tuple(item.key.rpartition("/")[2] for item in page.items)
                raise Conflict(f"{name!r} is in use by {', '.join(ids)} and perhaps more", ids=ids)
            rest = await self._etcd.grant(_NUMBER_REST)
            result = await self._etcd.transact(
                [
                    unchanged(SPACES + name, stored.revision),
                    none_newer(under, page.revision),
                    as_planned,
                ],
                [
                    Delete(SPACES + name),
                    Delete(owners_of_space(doc.number), prefix=True),
                    Delete(moves_of_space(doc.number), prefix=True),
                    Delete(plan_key(doc.number)),
                    *(Delete(prefix, prefix=True) for prefix in history_of(doc.number)),
                    no_key(doc.number),
                    Put(f"{NUMBERS}{doc.number}", name.encode(), rest),
                ],
            )
            if result.succeeded:
                await self._catalogue.refresh_spaces()
                return LoadedSpace.of(doc)
        raise Unavailable(f"other calls are changing {name!r} at the same time; try again")

    async def store_new(
        self, doc: SpaceDoc, compares: Sequence[Compare], more: Sequence[Op]
    ) -> bool:
        """Store a given space, with owners; False if it exists, or a comparison does not hold."""
        absence = absent(SPACES + doc.name)
        if doc.authentication == "tagged":
            doc = replace(doc, key=0)  # of a key that only now is made
            more = [*more, first_key(doc, self._new_id)]
        return await self._put_with_owners([absence, *compares], doc, doc.current, more)

    # Making and changing

    async def _create(self, name: str, schema: object, authentication: Authentication) -> bool:
        page = await self._etcd.range(NUMBERS)
        taken = {int(item.key.removeprefix(NUMBERS)) for item in page.items}
        number = next((n for n in range(1, MAX_SPACE + 1) if n not in taken), None)
        if number is None:
            raise Conflict(f"there are {MAX_SPACE} spaces already; delete one first")
        doc = await asyncio.to_thread(
            new_space, name, number, schema, self._plan(), self._partitions(), self._prefix()
        )
        doc = replace(doc, authentication=authentication)
        key = f"{NUMBERS}{number}"
        return await self.store_new(doc, [absent(key)], [Put(key, name.encode())])

    async def _set_authentication(
        self, doc: SpaceDoc, revision: int, wanted: Authentication
    ) -> None:
        """Have events carry tags from now on, or not; publishers and receivers are told of it."""
        changed = replace(doc, authentication=wanted, key=next_key(doc))
        tagged = wanted == "tagged"
        keys = first_key(changed, self._new_id) if tagged else no_key(doc.number)
        await self._etcd.transact(
            [unchanged(SPACES + doc.name, revision)],
            [Put(SPACES + doc.name, encode(changed)), keys],
        )

    async def _change(self, doc: SpaceDoc, revision: int, schema: object) -> bool:
        if doc.by or len(doc.versions) > 1:
            raise Conflict(f"{doc.name!r} is being changed already; try again later")
        changed = await asyncio.to_thread(new_version, doc, schema, self._partitions())
        version = newer_version(changed)
        assert version is not None
        as_planned = await self._check_no_plan(doc)
        await self._index_changes.check_fit(changed, version)
        compares = [unchanged(SPACES + doc.name, revision), as_planned]
        if await self._put_with_owners(compares, replace(changed, by=self._me), version, []):
            self._index_changes.drive(doc.name)
            return True
        return False

    async def _check_no_plan(self, doc: SpaceDoc) -> Compare:
        """Conflict while a plan for the partition map runs; the comparison that none has begun."""
        key = plan_key(doc.number)
        stored = await self._etcd.get(key)
        if stored and decode_plan(stored.value).running:
            raise Conflict(f"the partition map of {doc.name!r} is being changed; try again later")
        return unchanged(key, stored.revision if stored else 0)

    async def _put_with_owners(
        self, compares: Sequence[Compare], doc: SpaceDoc, version: int, more: Sequence[Op]
    ) -> bool:
        """Store a space, and before or with it the owners of the partitions of one version.

        False if a comparison does not hold, or another number of configurators is wanted by now.
        In mode `sea` they have no owners yet; instead, what is left of former partitions with
        the same names is deleted.
        """
        view = await asyncio.to_thread(LoadedSpace.of, doc)
        count = await self._etcd.get(_CONFIGURATORS)
        # A configurator that is to leave by now must not get anything: it may be about to end.
        compares = [*compares, unchanged(_CONFIGURATORS, count.revision if count else 0)]
        wanted = read_count(count.value if count else None)
        owners = self._spread(view.versions[version].partitions(), wanted)
        if self._options.mode == "sea":
            owners = [Delete(prefix, prefix=True) for prefix in history_of(doc.number, version)]
        put = Put(SPACES + doc.name, encode(doc))
        while len(owners) + len(more) + 1 > _AT_ONCE:
            some, owners = owners[:_AT_ONCE], owners[_AT_ONCE:]
            if not (await self._etcd.transact(compares, some)).succeeded:
                return False
        return (await self._etcd.transact(compares, [*owners, *more, put])).succeeded

    def _spread(self, partitions: Sequence[str], wanted: int | None) -> list[Op]:
        """Owner keys for partitions: each goes to the configurator that owns the fewest."""
        counts = dict.fromkeys(sorted(staying(self._fleet.configurators.processes, wanted)), 0)
        if not counts:
            raise Unavailable("no configurator is alive to own the space's partitions", 2.0)
        for owner, _ in self._catalogue.owners.values():
            if owner in counts:
                counts[owner] += 1
        puts: list[Op] = []
        for partition in partitions:
            owner = min(counts, key=lambda name: counts[name])
            counts[owner] += 1
            puts.append(Put(owner_key(partition), owner.encode()))
        return puts

    def _partitions(self) -> int:
        options = self._options
        configurators = self._workers.wanted("configurators") or len(
            self._fleet.configurators.processes
        )
        return options.partitions or max(1, options.partitions_per_configurator * configurators)

    def _plan(self) -> PlanName:
        doc = self._catalogue.network_doc
        return doc.pipeline.plan if doc else self._options.plan

    def _prefix(self) -> int:
        return self._catalogue.prefix

    async def _known(self, name: str) -> LoadedSpace:
        await self._catalogue.refresh_spaces()
        return self._catalogue.spaces.named(name)


def split_authentication(schema: object) -> tuple[object, Authentication | None]:
    """The schema of a space alone, and whether its events carry tags; None if it does not say."""
    if not isinstance(schema, Mapping) or "authentication" not in schema:
        return schema, None
    wanted = schema["authentication"]
    if wanted is not None and wanted not in get_args(Authentication):
        text = f"authentication must be one of {', '.join(get_args(Authentication))}"
        raise BadSchema(f"{text}, got {shown(wanted)}", member="authentication")
    rest = {name: value for name, value in schema.items() if name != "authentication"}
    return rest, cast("Authentication | None", wanted)
