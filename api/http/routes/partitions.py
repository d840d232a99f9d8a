"""Partitions: owners and load, moves between configurators, partition maps, balancing."""

import msgspec
from fastapi import Response
from msgspec.structs import replace

from api.http.border.route import ApiRequest, new_router
from api.http.dependencies import DispatcherDep, MonitorDep, OnceDep
from api.http.schema.models import BalancingOut, JobsOut, MigrateIn, PartitionsOut
from api.http.schema.msgspec_types import Json, JsonBody
from api.http.schema.openapi import answer, example, problems
from api.http.schema.parameters import PartitionPath, SpaceQuery
from api.http.schema.plans import PlanIn, PlansOut
from configurators.engine.partition_map import PartitionMap
from dispatcher.views import PartitionReach
from monitor.views import MoveView, PlanView, show_maps, show_move

router = new_router("control")


@router.get("/partitions", responses={200: answer("All partitions.")})
async def list_partitions(dispatcher: DispatcherDep) -> Json[PartitionsOut]:
    """All partitions, their owners and load; the moves in progress, and the partition maps."""
    catalogue = dispatcher.catalogue
    return PartitionsOut(
        dispatcher.status.partitions(),
        [show_move(name, move) for name, (move, _) in sorted(catalogue.moves.items())],
        show_maps(catalogue.spaces),
    )


@router.get(
    "/partitions/{id:path}/reach",
    responses={200: answer("Switches, links and hosts."), **problems(404, 429)},
)
async def get_reach(id: PartitionPath, dispatcher: DispatcherDep) -> Json[PartitionReach]:
    """The part of the network that the entries of a partition use, computed from the records."""
    return await dispatcher.reach(id)


@router.post(
    "/partitions/{id:path}/migrate",
    responses={
        200: answer("The partition has moved."),
        202: answer("It is moving.", Json[MoveView]),
        **problems(404, 409),
    },
    openapi_extra=example({"to": "configurator-2"}),
)
async def migrate(
    id: PartitionPath,
    asked: JsonBody[MigrateIn],
    request: ApiRequest,
    monitor: MonitorDep,
    once: OnceDep,
    response: Response,
) -> Json[MoveView]:
    """Move a partition to another configurator (mode `sna`); no flow is touched."""
    settings = request.context.settings
    wait = settings.default_wait if asked.wait is True else float(asked.wait)
    move = await once(lambda: monitor.moves.ask(id, asked.to, "an operator asked for it"))
    moved = await monitor.moves.wait(id, move, wait) if wait else False
    response.status_code = 200 if moved else 202
    return show_move(id, replace(move, phase="moved") if moved else move)


@router.post(
    "/partitions/plan",
    status_code=202,
    responses={202: answer("The plan is being carried out."), **problems(409)},
    openapi_extra=example(
        {
            "space": "stocks",
            "version": 0,
            "number": 0,
            "map": {"plan": "legs", "root": {"bit": 3, "one": {"bit": 7}}},
            "assignment": {"3-1.7-0": "configurator-0"},
            "reasons": ["half of all requests are in the partition 3-1"],
        }
    ),
)
async def start_plan(asked: JsonBody[PlanIn], monitor: MonitorDep, once: OnceDep) -> Json[PlanView]:
    """Go over to another partition map, step by step, while the space is in use.

    An element of `maps` in `GET /partitions` is a plan that changes nothing: change its `map`. It
    is refused (409) if there is no such space, if it has another map by now, or if a configurator
    of the `assignment` is not alive or is to leave. No flow that stays needed is interrupted.
    """
    wanted = msgspec.convert(msgspec.to_builtins(asked.map), PartitionMap)
    plan = await once(
        lambda: monitor.plans.start(
            asked.space, asked.version, asked.number, wanted, asked.assignment, asked.reasons
        )
    )
    return monitor.show_plan(plan)


@router.get("/partitions/plan", responses={200: answer("The last plan of each space.")})
async def list_plans(monitor: MonitorDep) -> Json[PlansOut]:
    """The last plan for the map of each space, running or ended, with its steps."""
    plans = sorted(monitor.plans.plans(), key=lambda plan: plan.space)
    return PlansOut([monitor.show_plan(plan) for plan in plans])


@router.delete(
    "/partitions/plan",
    status_code=202,
    responses={202: answer("The plan is being aborted."), **problems(404, 409)},
)
async def abort_plan(monitor: MonitorDep, space: SpaceQuery = None) -> Json[PlanView]:
    """Abort a plan: steps that are done stay, the one that is being carried out is undone.

    Name the space if several plans are being carried out.
    """
    return monitor.show_plan(await monitor.plans.abort(space))


@router.get("/balancing", responses={200: answer("What the balancer does, and would do now.")})
async def get_balancing(monitor: MonitorDep) -> Json[BalancingOut]:
    """What the balancer of the leading monitor does, and what its policy would propose now."""
    return BalancingOut(monitor.balancer.status(), monitor.balancer.dry_run())


@router.get("/jobs", responses={200: answer("The scheduled job, and its last run.")})
async def get_jobs(monitor: MonitorDep) -> Json[JobsOut]:
    """The Spark job that the leading monitor runs every so often: its last run and proposals."""
    options = monitor.job_options
    state = monitor.job_results.state
    if options is None:
        return JobsOut(0.0, None, None, state)
    return JobsOut(options.every, options.kind, options.mode, state)
