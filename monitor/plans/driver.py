"""Carries out the plans for partition maps that stand in etcd; runs on the leading monitor.

The stored plan says how far it has come, so that any monitor can go on with it. A step changes the
map in one transaction. From then on southbound processes let no owner in of the partitions that are
gone, and the owners of the new partitions take them over as after a failure: they read the records,
and switches get what they lack. When all of them have it, the new partitions begin to work, and
switches lose what is not needed any more. No flow that stays needed is interrupted.

A step that a switch has no room for, or whose plan is aborted, is undone: nothing was removed until
then, so the switches still have all that the former map needs.
"""

import asyncio
import logging
from collections.abc import Awaitable, Sequence

from msgspec.structs import replace

from configurators.state.spaces import LoadedSpace, LoadedVersion, with_map, with_settled_map
from configurators.store.documents import encode
from configurators.store.etcd.client import Compare, Delete, Etcd, Op, Put, StoreError, unchanged
from configurators.store.keys import (
    CLEAN,
    CUTS,
    JOURNAL,
    LOCKS,
    SPACES,
    PartitionName,
    journal_of,
    locks_of,
    owner_key,
    plan_key,
    wanted_key,
)
from configurators.store.model import MapPlan, PlanPhase, SpaceDoc
from dispatcher.errors import DispatcherError
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.knowledge.fleet import Fleet
from dispatcher.knowledge.workers import Workers
from dispatcher.metrics import PlanMetrics
from dzflow.aio import wait_until_set
from monitor.moves.requests import MoveRequests
from monitor.plans.settling import Reports, cleaned, refusal, why_unsettled
from monitor.plans.steps import next_map

log = logging.getLogger(__name__)

_AT_ONCE = 100  # operations in one transaction
_ASKED = "an operator has aborted it"
_TICK = 0.25  # seconds between looks while a plan runs
_PAUSE = 0.5  # before the next attempt when etcd does not answer


class PlanDriver:
    """Takes every plan from step to step; every write compares that this monitor leads."""

    def __init__(
        self,
        etcd: Etcd,
        catalogue: Catalogue,
        fleet: Fleet,
        workers: Workers,
        moves: MoveRequests,
        counts: PlanMetrics,
    ) -> None:
        self._etcd = etcd
        self._catalogue = catalogue
        self._fleet = fleet
        self._workers = workers
        self._moves = moves
        self._counts = counts
        self._tried: dict[str, dict[str, str]] = {}  # by plan: what came of moving each leaf
        self._changed = asyncio.Event()
        catalogue.plan_changed.subscribe(lambda _: self._changed.set())
        catalogue.space_changed.subscribe(lambda _: self._changed.set())
        catalogue.move_changed.subscribe(lambda _: self._changed.set())
        fleet.configurator_changed.subscribe(lambda _: self._changed.set())
        fleet.switches_changed.subscribe(self._changed.set)

    async def run(self, lead: Compare) -> None:
        """Carry out all plans until cancelled."""
        while True:
            self._changed.clear()
            running = False
            failed = False
            for number, (plan, revision) in list(self._catalogue.plans.items()):
                if plan.running:
                    running = True
                    failed |= await self._fails(self._advance(number, plan, revision, lead))
            for space in list(self._catalogue.spaces):
                if self._lacks_plan(space):
                    running = True
                    failed |= await self._fails(self._settle_without_plan(space, lead))
            if failed:
                await asyncio.sleep(_PAUSE)
                continue
            await wait_until_set(self._changed, _TICK if running else None)

    async def _fails(self, work: Awaitable[None]) -> bool:
        """Whether work on one plan fails: that must not hold up other plans, or moves."""
        try:
            await work
        except StoreError as error:
            log.warning("a plan for a partition map waits: %s", error)
        except Exception:
            log.exception("a plan for a partition map has failed, and is tried again")
        else:
            return False
        return True

    async def _advance(self, number: int, plan: MapPlan, revision: int, lead: Compare) -> None:
        guards = [lead, unchanged(plan_key(number), revision)]
        space = self._catalogue.spaces.numbered(number)
        view = space.versions.get(plan.version) if space else None
        if space is None or space.name != plan.space or view is None:
            await self._enter(number, plan, "aborted", guards, "the space, or its version, is gone")
        elif view.map_number < plan.map_number:
            await self._catalogue.refresh(space)  # the last step is not known here yet
        elif view.map_number > plan.map_number:
            await self._abort(number, plan, space, view, guards, "the map was changed meanwhile")
        elif plan.phase == "cutting":
            await self._cut(number, plan, space, view, guards)
        elif plan.phase == "settling":
            await self._settle(number, plan, space, view, guards)
        else:
            await self._move(number, plan, view, guards)

    # Cutting

    async def _cut(
        self,
        number: int,
        plan: MapPlan,
        space: LoadedSpace,
        view: LoadedVersion,
        guards: Sequence[Compare],
    ) -> None:
        if plan.aborting:
            await self._abort(number, plan, space, view, guards, plan.text or _ASKED)
            return
        if space.doc.by:
            await self._abort(number, plan, space, view, guards, "the index is being changed")
            return
        if not cleaned(self._catalogue.space_revision(space), self.reports()):
            return  # the entries that the last step has left would take up room in the next one
        # Not before: a step that is undone needs what is stored for the partitions that were gone.
        await self._clean(space, view, guards)
        following = next_map(view.map, plan.map)
        if following is None:
            await self._enter(number, plan, "moving", guards)
        elif why := refusal(self.reports()):
            await self._abort(number, plan, space, view, guards, why)
        else:
            doc = with_map(space.doc, plan.version, following)
            changed = replace(plan, phase="settling", before=view.map)
            await self._change_map(number, changed, space, doc, guards)

    async def _undo(
        self, number: int, plan: MapPlan, space: LoadedSpace, guards: Sequence[Compare], why: str
    ) -> None:
        """Go back to the map before the step that is settling; the plan is aborted then.

        The partitions of that map wait for no entry: switches have all that they need.
        """
        assert plan.before
        doc = with_settled_map(with_map(space.doc, plan.version, plan.before), plan.version)
        changed = replace(plan, before=None, aborting=True, text=why)
        await self._change_map(number, changed, space, doc, guards)

    async def _change_map(
        self,
        number: int,
        plan: MapPlan,
        space: LoadedSpace,
        doc: SpaceDoc,
        guards: Sequence[Compare],
    ) -> None:
        """Store another map, and how far the plan has come with that."""
        new = LoadedSpace.of(doc).versions[plan.version]
        view = space.versions[plan.version]
        if not self._catalogue.partitions_locked:
            guards = [*guards, self._wanted_unchanged()]
            if not await self._assign(plan, view, new, guards):
                return
        put_space = Put(SPACES + space.name, encode(doc))
        put_plan = Put(plan_key(number), encode(replace(plan, map_number=new.map_number)))
        as_known = unchanged(SPACES + space.name, self._catalogue.space_revision(space))
        result = await self._etcd.transact([*guards, as_known], [put_space, put_plan])
        if result.succeeded:
            text = "space %s has the partition map %d with %d partitions"
            log.info(text, space.name, new.map_number, len(new.leaves))
        await self._catalogue.refresh(space)
        await self._catalogue.refresh_plans()

    async def _assign(
        self,
        plan: MapPlan,
        view: LoadedVersion,
        new: LoadedVersion,
        guards: Sequence[Compare],
    ) -> bool:
        """Give new partitions owners, before the map has them: nobody acts on that yet.

        Configurators that are to leave get none. False if no configurator is alive.
        """
        processes, owners = self._fleet.configurators.processes, self._catalogue.owners
        alive = self._workers.staying("configurators", processes)
        gone = [name for name in view.partitions() if _gone(new, name)]
        former = dict.fromkeys(owners[name][0] for name in gone if name in owners)
        heirs = [owner for owner in former if owner in alive] or sorted(alive)
        if not heirs:
            return False
        added = [name for name in new.partitions() if _gone(view, name)]
        ops: list[Op] = []
        for place, name in enumerate(added):
            wanted = plan.assignment.get(PartitionName.parse(name).leaf, "")
            before = owners[name][0] if name in owners else ""  # if the step is undone
            heir = before if before in alive else heirs[place % len(heirs)]
            owner = wanted if wanted in alive else heir
            ops.append(Put(owner_key(name), owner.encode()))
        await self._write(ops, guards)
        return True

    def _wanted_unchanged(self) -> Compare:
        """That the same number of configurators is wanted: otherwise other ones may be to leave."""
        return unchanged(wanted_key("configurators"), self._workers.wanted_at("configurators"))

    # Settling

    async def _settle(
        self,
        number: int,
        plan: MapPlan,
        space: LoadedSpace,
        view: LoadedVersion,
        guards: Sequence[Compare],
    ) -> None:
        """Let new partitions work when they have all their entries everywhere."""
        why = (plan.text or _ASKED) if plan.aborting else refusal(self.reports())
        if plan.before and why:
            await self._undo(number, plan, space, guards, why)
            return
        if self.why_unsettled(space, view):
            return
        ops = [Put(plan_key(number), encode(replace(plan, phase="cutting", before=None)))]
        if view.cutting:  # and the step was not undone
            doc = with_settled_map(space.doc, plan.version)
            ops.append(Put(SPACES + space.name, encode(doc)))
        as_known = unchanged(SPACES + space.name, self._catalogue.space_revision(space))
        result = await self._etcd.transact([*guards, as_known], ops)
        if result.succeeded:
            self._counts.steps["done" if view.cutting else "undone"] += 1
        await self._catalogue.refresh(space)
        await self._catalogue.refresh_plans()

    def _lacks_plan(self, space: LoadedSpace) -> bool:
        """Whether partitions are new, and the plan that added them is gone.

        Somebody may have deleted its document.
        """
        plan, _ = self._catalogue.plans.get(space.number, (None, 0))
        return any(view.cutting for view in space.versions.values()) and not (plan and plan.running)

    async def _settle_without_plan(self, space: LoadedSpace, lead: Compare) -> None:
        """Let new partitions work although the plan that added them is gone."""
        _, revision = self._catalogue.plans.get(space.number, (None, 0))
        for view in [view for view in space.versions.values() if view.cutting]:
            if not self.why_unsettled(space, view):
                doc = with_settled_map(space.doc, view.version)
                compares = [
                    lead,
                    unchanged(plan_key(space.number), revision),
                    unchanged(SPACES + space.name, self._catalogue.space_revision(space)),
                ]
                await self._etcd.transact(compares, [Put(SPACES + space.name, encode(doc))])

    def why_unsettled(self, space: LoadedSpace, view: LoadedVersion) -> str:
        """Why new partitions may not work yet; empty if they may."""
        return why_unsettled(
            [n for n in view.partitions() if PartitionName.parse(n).leaf in view.cutting],
            self._catalogue.space_revision(space),
            self._catalogue.owners,
            self._catalogue.network_doc,
            self.reports(),
        )

    def reports(self) -> Reports:
        """What all processes that are alive have reported last."""
        fleet = self._fleet
        return Reports(
            {name: fleet.switch_reports.get(name) for name in fleet.southbound.processes},
            {name: fleet.loads.get(name) for name in fleet.configurators.processes},
        )

    async def _clean(
        self, space: LoadedSpace, view: LoadedVersion, guards: Sequence[Compare]
    ) -> None:
        """Delete what is stored for partitions that the map no longer has."""
        scope = f"{space.number:x}.{view.version}/"
        if not self._catalogue.partitions_locked:
            gone = [n for n in self._catalogue.owners if n.startswith(scope) and _gone(view, n)]
            await self._write([Delete(owner_key(name)) for name in gone], guards)
            return
        names: set[str] = set()
        for prefix in (CLEAN, CUTS):
            page = await self._etcd.range(prefix + scope, values=False)
            names.update(item.key.removeprefix(prefix) for item in page.items)
        for prefix in (JOURNAL, LOCKS):
            page = await self._etcd.range(prefix + scope, values=False)
            names.update(i.key.removeprefix(prefix).rpartition("/")[0] for i in page.items)
        ops: list[Op] = []
        for name in sorted(name for name in names if _gone(view, name)):
            ops += [Delete(CLEAN + name), Delete(CUTS + name)]
            ops += [Delete(journal_of(name), prefix=True), Delete(locks_of(name), prefix=True)]
        await self._write(ops, guards)

    # Moving

    async def _move(
        self, number: int, plan: MapPlan, view: LoadedVersion, guards: Sequence[Compare]
    ) -> None:
        scope = f"{number:x}.{view.version}/"
        tried = self._tried.setdefault(plan.id, {})
        if any(name.startswith(scope) for name in self._catalogue.moves):
            return  # one at a time
        elsewhere = {
            leaf: target
            for leaf, target in plan.assignment.items()
            if (owner := self._catalogue.owners.get(scope + leaf)) and owner[0] != target
        }
        for leaf, target in elsewhere.items() if not plan.aborting else ():
            if leaf not in tried:
                try:
                    text = "a plan assigns it"
                    await self._moves.ask(scope + leaf, target, text, "plan", guards)
                except DispatcherError as error:
                    tried[leaf] = str(error)
                else:
                    tried[leaf] = f"it was tried to move it to {target}"
                    return
        if plan.aborting:
            await self._enter(number, plan, "aborted", guards)
        else:
            text = "; ".join(f"{leaf} has not moved: {tried[leaf]}" for leaf in elsewhere)
            await self._enter(number, plan, "done", guards, text)

    # Writing

    async def _abort(
        self,
        number: int,
        plan: MapPlan,
        space: LoadedSpace,
        view: LoadedVersion,
        guards: Sequence[Compare],
        why: str,
    ) -> None:
        log.warning("the plan for the partition map of %s is aborted: %s", space.name, why)
        await self._clean(space, view, guards)
        await self._enter(number, plan, "aborted", guards, why)

    async def _enter(
        self,
        number: int,
        plan: MapPlan,
        phase: PlanPhase,
        guards: Sequence[Compare],
        text: str | None = None,
    ) -> None:
        changed = replace(plan, phase=phase, text=plan.text if text is None else text)
        result = await self._etcd.transact(guards, [Put(plan_key(number), encode(changed))])
        if changed.phase in ("done", "aborted"):
            self._tried.pop(plan.id, None)
            if result.succeeded:
                self._counts.outcomes[changed.phase] += 1
        await self._catalogue.refresh_plans()

    async def _write(self, ops: Sequence[Op], guards: Sequence[Compare]) -> None:
        for at in range(0, len(ops), _AT_ONCE):
            await self._etcd.transact(guards, ops[at : at + _AT_ONCE])


def _gone(view: LoadedVersion, partition: str) -> bool:
    return not view.has(PartitionName.parse(partition).leaf)
