"""The monitor: watches over the control plane, in each API process beside the dispatcher."""

import asyncio
import logging
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from msgspec.structs import replace

from configurators.environment import Environment
from configurators.store.etcd.client import Compare
from configurators.store.model import MapPlan
from dispatcher.dispatcher import Dispatcher
from dzflow.aio import BackgroundTasks
from monitor.balancing.balancer import Balancer, BalancerOptions, Observation
from monitor.balancing.policy import LOOK_BACK, PastMove, Policy
from monitor.balancing.predictive import PredictivePolicy
from monitor.history.recorder import DEFAULT_SIZE, HistoryRecorder
from monitor.jobs.results import JobResults
from monitor.jobs.scheduler import JobOptions, JobScheduler
from monitor.jobs.state import JobState
from monitor.leader import Leadership, NotLeading
from monitor.load.measurement import LoadMeasurement
from monitor.load.rates import show_load
from monitor.load.samples import Sample
from monitor.moves.decision import MoveLimits
from monitor.moves.ends import MoveEnded, MoveEnds
from monitor.moves.mover import Mover
from monitor.moves.requests import MoveRequests
from monitor.plans.driver import PlanDriver
from monitor.plans.requests import PlanRequests
from monitor.views import PlanView, show_plan

log = logging.getLogger(__name__)

_RETRY = 0.5  # seconds


class Monitor:
    """Ties the monitor's parts together. Use as an async context manager, within the dispatcher's.

    `load` measures the load and keeps it, `history` keeps what happened to workers and partitions.
    `moves` and `plans` take in what is to change, `balancer` proposes moves. The monitor that leads
    carries all that out, in whichever process it was asked for.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        environment: Environment | None = None,
        policy: Policy | None = None,
        options: BalancerOptions | None = None,
        limits: MoveLimits | None = None,
        jobs: JobOptions | None = None,
        keep_history: int = DEFAULT_SIZE,
    ) -> None:
        """Without `jobs`, no job is run."""
        environment = environment or Environment()
        self._dispatcher = dispatcher
        self._clock = clock = environment.clock
        self._stack = AsyncExitStack()
        etcd, catalogue, fleet = dispatcher.etcd, dispatcher.catalogue, dispatcher.fleet
        workers = dispatcher.workers
        self.load = LoadMeasurement(fleet, clock, self._tell_readers)
        self.history = HistoryRecorder(
            *(catalogue, fleet, workers, clock),
            dispatcher.id,
            dispatcher.publish_history,
            keep_history,
        )
        self.leadership = Leadership(etcd, dispatcher.id, on_change=self.history.leader_changed)
        self.moves = MoveRequests(etcd, catalogue, fleet, workers, clock, environment.new_id)
        self.plans = PlanRequests(etcd, catalogue, fleet, workers, clock, environment.new_id)
        self._mover = Mover(etcd, catalogue, fleet, workers, clock, self._count_move, limits)
        self._ends = MoveEnds(catalogue, self._remember_move)
        counts = dispatcher.metrics.plans
        self._plan_driver = PlanDriver(etcd, catalogue, fleet, workers, self.moves, counts)
        self.job_options = jobs
        self.job_results = JobResults(etcd, self._tell_of_job)
        self._jobs = (
            JobScheduler(
                *(etcd, dispatcher.id, jobs, self._staying, self._owners),
                *(self.plans.start, dispatcher.put_shapes, clock),
            )
            if jobs
            else None
        )
        catalogue.plan_changed.subscribe(self._tell_of_plan)
        catalogue.space_changed.subscribe(self._tell_of_map)
        self.balancer = Balancer(
            self.leadership,
            policy or PredictivePolicy(),
            self.moves,
            self._observe,
            self._resting,
            options or BalancerOptions(),
            clock,
        )

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            tasks = BackgroundTasks()
            stack.push_async_callback(tasks.cancel)
            self.history.begin()
            for number in self._dispatcher.catalogue.plans:
                self._tell_of_plan(number)
            tasks.spawn(self.load.run(), "measurement of the load")
            tasks.spawn(self.leadership.run(), "leadership")
            tasks.spawn(self._lead(), "moves and plans")
            tasks.spawn(self.job_results.run(), "results of jobs")
            if not self._dispatcher.catalogue.partitions_locked:
                tasks.spawn(self.balancer.run(), "balancer")
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    def show_plan(self, plan: MapPlan) -> PlanView:
        """A plan as users see it, with what it waits for now."""
        space = self._dispatcher.catalogue.spaces.get(plan.space)
        view = space.versions.get(plan.version) if space else None
        if space is None or view is None:
            return show_plan(plan, None)
        waits = plan.phase == "settling" and view.map_number == plan.map_number
        why = self._plan_driver.why_unsettled(space, view) if waits else ""
        return show_plan(plan, view.map, why)

    async def _lead(self) -> None:
        """Carry out moves and plans whenever this monitor leads, until cancelled."""
        while True:
            await self.leadership.wait_gained()
            try:
                await self._act_as_leader(self.leadership.fence())
            except NotLeading as error:
                log.info("%s", error)
            except Exception:
                # One bad move must not keep all others from being made for good.
                log.exception("moves of partitions have failed, and are tried again")
            await asyncio.sleep(_RETRY)

    async def _act_as_leader(self, fence: Compare) -> None:
        """Carry out moves and plans until this monitor does not lead any more."""
        work = [
            asyncio.create_task(self._mover.run(fence), name="mover"),
            asyncio.create_task(self._plan_driver.run(fence), name="driver of plans"),
            asyncio.create_task(self.leadership.wait_lost(), name="end of the leadership"),
        ]
        if self._jobs:
            work.append(asyncio.create_task(self._jobs.run(fence), name="scheduled job"))
        try:
            done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)

    def _tell_of_plan(self, number: int) -> None:
        known = self._dispatcher.catalogue.plans.get(number)
        if known:
            plan = known[0]
            # What it waits for is left out: it changes with every report of a process.
            view = replace(self.show_plan(plan), waiting="")
            self._dispatcher.publish_plan(plan.space, view)

    def _tell_of_job(self, state: JobState) -> None:
        self._dispatcher.metrics.jobs.note(state.counts, state.last_success)
        self._dispatcher.publish_job(state)
        self.history.job_changed(state)

    def _staying(self) -> list[str]:
        """The configurators that may own partitions."""
        alive = self._dispatcher.fleet.configurators.processes
        return sorted(self._dispatcher.workers.staying("configurators", alive))

    def _owners(self) -> dict[str, str]:
        """The configurator that each partition has now."""
        owners = self._dispatcher.catalogue.owners
        return {partition: owner for partition, (owner, _) in owners.items()}

    def _tell_of_map(self, name: str) -> None:
        if space := self._dispatcher.catalogue.spaces.get(name):
            self._tell_of_plan(space.number)

    def _tell_readers(self, sample: Sample) -> None:
        self._dispatcher.publish_load(lambda: show_load(sample))

    def _observe(self) -> Observation:
        dispatcher = self._dispatcher
        alive = dispatcher.fleet.configurators.processes
        leaving = dispatcher.scaling.view("configurators").leaving
        return Observation(
            self.load.history.finest_since(self._clock.wall() - LOOK_BACK),
            self._owners(),
            frozenset(alive).difference(leaving) or frozenset(alive),
        )

    def _resting(self) -> str | None:
        """Why no partition may be moved for balance now."""
        catalogue = self._dispatcher.catalogue
        for plan, _ in catalogue.plans.values():
            if plan.running:
                return f"the partition map of {plan.space} is being changed"
        for space in catalogue.spaces:
            if space.doc.by:
                return f"the index of {space.name} is being changed"
        return None

    def _count_move(self, ended: MoveEnded) -> None:
        """Count a move that this monitor has carried out to its end."""
        done = ended.move.phase == "moved"
        self._dispatcher.metrics.migrations.ended("done" if done else "failed")

    def _remember_move(self, ended: MoveEnded) -> None:
        """Remember the move of any monitor: this one may lead next."""
        move, at = ended.move, self._clock.wall()
        done = move.phase == "moved"
        self.balancer.note(PastMove(at, ended.partition, move.source, move.target, done))
