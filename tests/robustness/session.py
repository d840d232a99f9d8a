"""A session: a service, traffic, and rounds of faults; each round ends with a check of everything.

Arrangement, schema, traffic and faults are drawn from the session's seed.
"""

import asyncio
import shutil
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path
from random import Random
from typing import Any

import httpx
from msgspec import Struct

from configurators.store.etcd.errors import StoreError
from tests.end_to_end.world import World, make_schema
from tests.robustness.arrangements import ARRANGEMENTS, DRAWN, System
from tests.robustness.calls import eventually
from tests.robustness.checker import Violation, check
from tests.robustness.faults import carry_out
from tests.robustness.kinds import (
    LAB,
    MOVES,
    PLANS,
    WHOLE,
    WIRED,
    Kind,
    PlannedFault,
    plan_round,
)
from tests.robustness.operations import Operator
from tests.robustness.record import Fault, Paths, Recorder, Round, Setup
from tests.robustness.state import EtcdState, read_etcd_state, read_tables
from tests.robustness.traffic import HOSTS, Traffic

KINDS: dict[str, tuple[Kind, ...]] = {"whole": WHOLE, "wired": WIRED, "lab": LAB}
REST_SECONDS = 120.0  # for the service to come to rest after the last fault
_CALM = 1.0  # seconds of traffic before, and of events after the faults
_CALL = 10.0
_REQUESTS_END = 90.0


class Options(Struct, frozen=True):
    """The options of a session, besides its seed."""

    rounds: int = 8
    most_faults: int = 4
    arrangement: str = ""  # drawn if it is empty
    operator: bool | None = None  # whether partitions and the number of workers change
    only: str = ""  # if given, only faults whose names have this in them
    service: dict[str, Any] = {}  # settings, such as the mode; those not given are drawn


class Result(Struct):
    """The result of a session."""

    seed: int
    arrangement: str
    rounds: int = 0
    planned: list[PlannedFault] = []
    faults: list[Fault] = []  # that have struck
    violations: list[Violation] = []


Say = Callable[[str], None]


async def run_session(
    seed: int, options: Options, folder: Path, say: Say, go_on: Callable[[], bool] = lambda: True
) -> Result:
    """Run rounds until one of them finds a violation, or there are enough; keeps the record."""
    random = Random(seed)
    drawn = random.choice(DRAWN)
    arrangement = options.arrangement or drawn
    pace = _pace(Random(f"pace of {seed}"))
    settings = {**_settings(random, arrangement), **pace, **options.service}
    mode, drawing = settings.get("mode", "sna"), Random(f"operator of {seed}")
    drawn_operator = drawing.random() < 2 / 3
    kinds = _with_name(KINDS[arrangement], options.only)
    # Some kinds of faults need an operator.
    operated = (drawn_operator or not kinds) if options.operator is None else options.operator
    if operated:
        settings |= _operated(drawing)
        kinds += _with_name(MOVES + PLANS if mode == "sna" else PLANS, options.only)
    if not kinds:
        raise ValueError(f"no kind of faults here has {options.only!r} in its name")
    say(", ".join(f"{name}: {value}" for name, value in settings.items()))
    result = Result(seed, arrangement)
    world = World("one", make_schema(random, settings["plan"]), random)
    shutil.rmtree(folder / "data", ignore_errors=True)  # of an earlier session
    folder.mkdir(parents=True, exist_ok=True)
    with Recorder(folder / "record.jsonl") as recorder:
        recorder.add(Setup(seed, {"arrangement": arrangement, **settings}))
        async with ARRANGEMENTS[arrangement](folder / "data", say, **settings) as system:
            events = system.lab is None  # its hosts are reached from their namespaces only
            asked = Random(f"traffic of {seed}")
            operator = Operator(system.url, mode, drawing, recorder) if operated else None
            async with Traffic(system.url, world, asked, recorder, events) as traffic:
                for number in range(1, options.rounds + 1):
                    faults = plan_round(
                        Random(f"round {number} of {seed}"), kinds, options.most_faults
                    )
                    said = ", ".join(f"{f.kind.name} {f.target} {f.lasts:g} s" for f in faults)
                    say(f"round {number}: {said}")
                    result.planned += faults
                    result.faults += await _round(
                        number, faults, system, traffic, operator, recorder
                    )
                    result.rounds = number
                    result.violations = check(recorder.entries)
                    if result.violations or not go_on():
                        break
    return result


def _with_name(kinds: Iterable[Kind], part: str) -> tuple[Kind, ...]:
    """The kinds of faults with this in their names."""
    return tuple(kind for kind in kinds if part in kind.name)


def _settings(random: Random, arrangement: str) -> dict[str, Any]:
    """The settings of a service as users may have it."""
    return {
        "dispatchers": random.choice((1, 2)),
        # Switches outside of the service connect to one address.
        "southbound": random.choice((1, 2)) if arrangement == "whole" else 1,
        "plan": random.choice(("legs", "legs", "lpm")),
        "trees": random.choice((1, 2)),
        "ordering": random.choice(("net", "net", "fifo", "ordered")),
    }


def _pace(random: Random) -> dict[str, Any]:
    """How fast the switches are. If they are slow, work queues up, and locks change hands."""
    if random.random() < 0.5:
        return {}
    return {"slices": {"limit": 2}, "emulated": {"switch_delay_ms": 120.0}}


def _operated(random: Random) -> dict[str, Any]:
    """The settings of a service with an operator: it balances often, to drain soon."""
    mode = random.choice(("propose", "propose", "apply"))
    return {"balancing": {"mode": mode, "period": 1.0, "window": 5.0, "rest": 2.0}}


async def _round(
    number: int,
    faults: list[PlannedFault],
    system: System,
    traffic: Traffic,
    operator: Operator | None,
    recorder: Recorder,
) -> list[Fault]:
    begin = time.time()
    traffic.flowing.set()
    traffic.publishing.set()
    await _note_paths(system, recorder)
    await asyncio.sleep(_CALM)
    async with operator.at_work() if operator else nullcontext():
        done = await carry_out(faults, system, recorder)
    traffic.check()
    limits = httpx.Timeout(_CALL)
    async with httpx.AsyncClient(base_url=system.url, timeout=limits, trust_env=False) as client:
        trouble = ""
        try:
            await traffic.drain(_REQUESTS_END)
        except TimeoutError:
            trouble = f"requests are not answered within {_REQUESTS_END:g} s"
        inspection = _Inspection(system, client)
        trouble = trouble or await eventually(inspection.complaint, REST_SECONDS)
        # Applications find an emulated host that was restarted within some seconds.
        trouble = trouble or await traffic.wait_until_all_receive(REST_SECONDS)
    await _note_paths(system, recorder)
    healed = time.time()
    # From now on no event may be lost.
    await asyncio.sleep(_CALM)
    await traffic.stop_publishing()
    traffic.check()
    state = inspection.state
    recorder.add(
        Round(
            number,
            begin,
            healed,
            time.time(),
            state.stored() if state else (),
            inspection.tables,
            state.rebuilt() if state else {},
            trouble,
        )
    )
    return done


async def _note_paths(system: System, recorder: Recorder) -> None:
    try:
        state = await read_etcd_state(system.access)
    except StoreError:
        return  # etcd is just starting; that does not change the paths
    recorder.add(Paths(time.time(), state.paths(HOSTS)))


class _Inspection:
    """Inspects whether the service has come to rest; keeps what it read last."""

    def __init__(self, system: System, client: httpx.AsyncClient) -> None:
        self.state: EtcdState | None = None
        self.tables: dict[str, tuple[str, ...]] = {}
        self._system = system
        self._client = client
        self._assigned = system.service.settings.mode == "sna"

    async def complaint(self) -> str:
        """What is not in order yet; empty if everything is."""
        try:
            ready = await self._client.get("/readyz")
            if ready.status_code != 200 or not all(part["ok"] for part in ready.json()["parts"]):
                return f"not ready: {ready.text[:500]}"
            self.state = state = await read_etcd_state(self._system.access)
            if unfinished := state.unfinished():
                return f"{len(unfinished)} requests do not end: {unfinished[:3]}"
            switches = [switch.id for switch in state.network.topology.switches]
            self.tables = await read_tables(self._client, switches)
        except (httpx.HTTPError, StoreError) as error:
            return f"no answer: {error!r}"
        if misplaced := state.misplaced(self._assigned):
            return "; ".join(misplaced)
        rebuilt = state.rebuilt()
        wrong = [switch for switch in switches if self.tables[switch] != rebuilt[switch]]
        return f"the tables of {wrong} are not as they should be" if wrong else ""
