"""Takes plans for partition maps in, and aborts them; runs on every monitor."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from configurators.engine.partition_map import PartitionMap
from configurators.environment import Clock
from configurators.state.spaces import LoadedSpace
from configurators.store.documents import encode
from configurators.store.etcd.client import Etcd, Put, unchanged
from configurators.store.keys import SPACES, plan_key
from configurators.store.model import MapPlan
from dispatcher.errors import Conflict, NotFound
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.knowledge.fleet import Fleet
from dispatcher.knowledge.workers import Workers
from monitor.plans.steps import all_steps
from monitor.plans.validation import BadPlan, check_assignment, check_map

_MOST_BYTES = 1 << 20  # of a stored plan; etcd takes a little more


class PlanRequests:
    """Stores plans in etcd, for the leading monitor to carry out."""

    def __init__(
        self,
        etcd: Etcd,
        catalogue: Catalogue,
        fleet: Fleet,
        workers: Workers,
        clock: Clock,
        new_id: Callable[[int], str],
    ) -> None:
        self._etcd = etcd
        self._catalogue = catalogue
        self._fleet = fleet
        self._workers = workers
        self._clock = clock
        self._new_id = new_id

    async def start(
        self,
        space_name: str,
        version: int,
        map_number: int,
        partition_map: PartitionMap,
        assignment: Mapping[str, str],
        reasons: Sequence[str] = (),
    ) -> MapPlan:
        """Begin to go over to another partition map, and to another assignment of partitions.

        BadPlan if the map does not fit the index, or the assignment the map; Conflict if there is
        no such space, the map is not the one that the plan was made for, the space is being
        changed, or a configurator of the assignment is not alive.
        """
        await self._catalogue.refresh(self._space(space_name))
        await self._catalogue.refresh_plans()
        space = self._space(space_name)
        view = space.versions.get(version)
        if view is None or version != space.doc.current:
            raise Conflict(
                f"the plan is for version {version} of the index, and {space_name!r} has version"
                f" {space.doc.current}; make a new plan"
            )
        check_map(partition_map, view.map.plan)
        if assignment and self._catalogue.partitions_locked:
            raise Conflict(
                "in mode sea every configurator works on every partition: leave `assignment` out"
            )
        alive = self._fleet.configurators.processes
        staying = self._workers.staying("configurators", alive)
        check_assignment(assignment, partition_map.leaves(), alive, staying)
        if view.map_number != map_number:
            raise Conflict(
                f"the plan was made for the map number {map_number}, and {space_name!r} has"
                f" number {view.map_number} by now; make a new plan"
            )
        if space.doc.by or len(space.versions) > 1:
            raise Conflict(f"the index of {space_name!r} is being changed; try again later")
        known = self._catalogue.plans.get(space.number)
        if known and known[0].running:
            raise Conflict(
                f"another plan for {space_name!r} is being carried out; abort it, or try later"
            )
        steps = []
        for step in all_steps(view.map, partition_map):
            steps.append(step)
            await asyncio.sleep(0)  # thousands of partitions take seconds
        plan = MapPlan(
            self._new_id(8),
            space_name,
            version,
            map_number,
            map_number,
            partition_map,
            dict(assignment),
            tuple(reasons),
            "cutting",
            self._clock.wall(),
            tuple(steps),
        )
        stored = encode(plan)
        if len(stored) > _MOST_BYTES:
            raise BadPlan(
                f"the plan takes {len(stored)} bytes, and {_MOST_BYTES} can be stored; go there by"
                " several plans, or with fewer partitions"
            )
        key = plan_key(space.number)
        compares = [
            unchanged(key, known[1] if known else 0),
            unchanged(SPACES + space_name, self._catalogue.space_revision(space)),
        ]
        if not (await self._etcd.transact(compares, [Put(key, stored)])).succeeded:
            raise Conflict(f"{space_name!r} has changed meanwhile; make a new plan")
        await self._catalogue.refresh_plans()
        return plan

    def plans(self) -> list[MapPlan]:
        """The last plan of each space, running or ended."""
        return [plan for plan, _ in self._catalogue.plans.values()]

    async def abort(self, space_name: str | None = None) -> MapPlan:
        """Have a plan end: that of a space, or the only one that runs.

        The step that is being carried out is undone; those that are done stay. NotFound if no plan
        runs, Conflict if several run and no space is named.
        """
        while True:
            await self._catalogue.refresh_plans()
            number, plan, revision = self._find_running(space_name)
            text = plan.text or "an operator has aborted it"
            changed = replace(plan, aborting=True, text=text)
            key = plan_key(number)
            put = Put(key, encode(changed))
            if (await self._etcd.transact([unchanged(key, revision)], [put])).succeeded:
                await self._catalogue.refresh_plans()
                return changed

    def _space(self, name: str) -> LoadedSpace:
        """The space that a plan is for."""
        space = self._catalogue.spaces.get(name)
        if space is None:
            raise Conflict(
                f"the plan is for the space {name[:64]!r}, which does not exist; GET /partitions"
                " has the maps of all spaces"
            )
        return space

    def _find_running(self, space_name: str | None) -> tuple[int, MapPlan, int]:
        """The number of a space, its plan and the revision of that."""
        found = [
            (number, plan, revision)
            for number, (plan, revision) in self._catalogue.plans.items()
            if plan.running and space_name in (None, plan.space)
        ]
        if not found:
            where = "" if space_name is None else f" for {space_name[:64]!r}"
            raise NotFound(f"no plan{where} is being carried out; GET /partitions/plan lists plans")
        if len(found) > 1:
            names = ", ".join(sorted(plan.space for _, plan, _ in found))
            raise Conflict(f"several plans are being carried out; name a `space` of {names}")
        return found[0]
