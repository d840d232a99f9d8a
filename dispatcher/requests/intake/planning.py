"""Plans an operation: which record is to be stored, and which partitions get what of it."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from configurators.environment import Clock
from configurators.state.spaces import LoadedSpace
from configurators.store.keys import new_record_id
from configurators.store.model import NextFilter, Record, RecordKind
from dispatcher.calls import RecordSpec
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.requests.intake.permissions import Permissions
from dispatcher.requests.intake.routing import Indexed, Routing
from dispatcher.requests.operation import Operation
from dispatcher.requests.rollout import Rollout
from dispatcher.requests.shares import NOTHING, Shares, union
from dzflow.errors import BadInput
from dzflow.filters import STORED_WORK, TooManyConjunctions
from sdn.network.topology import UnknownHost


class Planner:
    """Plans operations with the spaces as they are known now."""

    def __init__(
        self,
        me: str,
        catalogue: Catalogue,
        routing: Routing,
        clock: Clock,
        new_id: Callable[[int], str],
        permissions: Permissions | None = None,
        max_filter: int | None = None,
    ) -> None:
        """`max_filter` is the most bytes that a new filter may have."""
        self._me = me
        self._catalogue = catalogue
        self._routing = routing
        self._clock = clock
        self._new_id = new_id
        self._permissions = permissions or Permissions()
        self._max_filter = max_filter

    @property
    def spent(self) -> float:
        """The processor time in seconds that filters have taken so far."""
        return self._routing.spent + self._permissions.spent

    def plan(self, operation: Operation) -> None:
        """Give an operation its `record` and its `rollout`.

        BadInput if its filter does not fit the space, UnknownSpace if there is none.
        """
        if operation.resumed or operation.spec is None:
            self._plan_change(operation)
        else:
            self._plan_new(operation, operation.spec)
        operation.map_numbers = self._catalogue.spaces.named(operation.record.space).map_numbers

    def still_routed(self, operation: Operation, space: LoadedSpace) -> bool:
        """Whether an operation has told all partitions that have a part in it by now."""
        if operation.map_numbers == space.map_numbers:
            return True
        record = operation.record
        advertised = record.kind == "advertisement"
        names = set(self._routing.route(space, advertised, record.regions))
        if record.next:
            names |= set(self._routing.route(space, advertised, record.next.regions))
        if names != set(operation.rollout.partitions):
            return False
        operation.map_numbers = space.map_numbers
        return True

    def new_record_id(self, kind: RecordKind, spec: RecordSpec, restricted: bool) -> str:
        """An id for a record that can be begun; `restricted` if a host asks for it.

        UnknownHost, UnknownSpace, TooLarge, Forbidden or BadInput if it cannot.
        """
        self.check_host(spec.host)
        space = self._catalogue.spaces.named(spec.space)
        self._routing.index(space, kind == "advertisement", spec.filter, self._max_filter)
        if restricted:
            self._permissions.check(spec.host, kind, space, spec.filter)
        return new_record_id(kind, space.number, self._new_id)

    def check_host(self, host: str) -> None:
        """UnknownHost if the network does not have a host."""
        if not self._catalogue.knows_host(host):
            raise UnknownHost(f"there is no host {host[:64]!r}; GET /hosts lists all hosts")

    def check_space(self, name: str) -> None:
        """UnknownSpace if there is no space of this name."""
        self._catalogue.spaces.named(name)

    def _plan_new(self, operation: Operation, spec: RecordSpec) -> None:
        kind = operation.kind
        space = self._catalogue.spaces.named(spec.space)
        indexed = self._index(operation, space, spec.filter)
        now = self._clock.wall()
        if not operation.has_given_id:
            # A new one each time: it names the space, which may have another number by now.
            operation.id = new_record_id(kind, space.number, self._new_id)
        operation.record = record = Record(
            operation.id,
            kind,
            spec.host,
            spec.space,
            spec.filter,
            indexed.regions,
            "pending",
            1,
            operation.created or now,
            self._me,
            label=spec.label,
            ttl=spec.ttl,
            expires=None if spec.ttl is None else now + spec.ttl,
        )
        operation.rollout = Rollout(record, {}, indexed.shares)

    def _plan_change(self, operation: Operation) -> None:
        """Plan an operation on a record that exists."""
        assert operation.stored
        record = operation.stored.record
        space = self._catalogue.spaces.named(record.space)
        advertised = record.kind == "advertisement"
        sure = not record.open and not operation.resumed
        before: Shares = self._routing.shares(space, record) if record.state != "pending" else {}
        changed = replace(record, seq=record.seq + 1, by=self._me)
        if operation.action == "end":
            if record.state == "pending":
                before = self._routing.shares(space, record)
            if record.next:
                other = self._routing.route(space, advertised, record.next.regions)
                before = {
                    name: union(before.get(name, NOTHING), other.get(name, NOTHING))
                    for name in {**before, **other}
                }
            operation.record = changed = replace(changed, state="removing")
            operation.rollout = Rollout(changed, before, {}, sure)
            return
        filter = record.filter if operation.action == "begin" else operation.filter
        try:
            indexed = self._index_again(operation, space, filter)
        except BadInput as error:
            if not operation.resumed:
                raise
            self._plan_undo(operation, changed, before, error)
            return
        if operation.action == "begin":
            changed = replace(changed, regions=indexed.regions)
        else:
            changed = replace(changed, next=NextFilter(filter, indexed.regions, operation.reindex))
        operation.record = changed
        operation.rollout = Rollout(changed, before, indexed.shares, sure)

    def _index_again(self, operation: Operation, space: LoadedSpace, filter: Any) -> Indexed:
        """The regions that an operation was written with; those of new versions are added.

        The dictionary may have changed meanwhile, and partitions may have the regions as written.
        """
        if not operation.resumed or operation.stored is None:
            return self._index(operation, space, filter)
        record = operation.stored.record
        written = record.next.regions if record.next else record.regions
        regions = {version: written[version] for version in space.versions if version in written}
        if len(regions) < len(space.versions):
            regions = self._index(operation, space, filter).regions | regions
        advertised = operation.kind == "advertisement"
        return Indexed(regions, self._routing.route(space, advertised, regions))

    def _index(self, operation: Operation, space: LoadedSpace, filter: Any) -> Indexed:
        """Index the filter of an operation, if the caller may have it."""
        advertised = operation.kind == "advertisement"
        most = self._max_filter if operation.limited else None
        try:
            indexed = self._routing.index(space, advertised, filter, most)
        except TooManyConjunctions:
            if operation.limited:
                raise
            # It is stored, perhaps since a release that accepted filters of more work.
            indexed = self._routing.index(space, advertised, filter, None, STORED_WORK)
        if operation.restricted:
            self._permissions.check(operation.host, operation.kind, space, filter)
        return indexed

    def _plan_undo(
        self, operation: Operation, record: Record, before: Shares, error: BadInput
    ) -> None:
        """Plan to take back an operation whose filter no longer fits its space."""
        space = self._catalogue.spaces.named(record.space)
        regions = record.next.regions if record.next else record.regions
        told = self._routing.route(space, record.kind == "advertisement", regions)
        operation.record = record
        operation.rollout = Rollout(
            record, before, told, sure=False, refusal=f"the space has changed meanwhile: {error}"
        )
