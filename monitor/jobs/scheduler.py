"""Runs a Spark job again and again, while this monitor leads: `rebalance` or `shapes`.

The job is a child process that only proposes: it gets no token and calls no API. If proposals are
to be applied, this process does so itself, as `POST /partitions/plan` and `PUT /spaces/NAME/shapes`
do.
"""

import asyncio
import logging
import os
import shutil
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from configurators.engine.partition_map import PartitionMap
from configurators.environment import Clock
from configurators.store.etcd.client import Compare, Etcd, Put, StoreError
from configurators.store.keys import JOB
from dzflow.errors import DzflowError
from dzflow.index import Shape
from monitor.jobs.job_process import LOWEST_PRIORITY, run_command
from monitor.jobs.schedule import seconds_until_due
from monitor.jobs.state import (
    BadResult,
    JobKind,
    JobMode,
    JobOutcome,
    JobRun,
    JobSpace,
    JobState,
    begin_run,
    close_run,
    decode_state,
    encode_state,
    end_run,
    read_result,
)
from monitor.leader import NotLeading

log = logging.getLogger(__name__)

_RETRY = 5.0  # seconds until the next attempt if etcd does not answer
_LAST_BYTES = 4_096  # of a log, in which the last line is looked for
_LONGEST = 1_800.0  # seconds of a run, unless the options say otherwise
_KEPT = 5  # runs whose logs and results are kept
_OWNERS = "owners.json"  # in the folder for temporary files of a run

DZFLOW = (sys.executable, "-c", "from dzflow.cli import main; main()")
"""The command `dzflow` of this installation."""

StartPlan = Callable[
    [str, int, int, PartitionMap, Mapping[str, str], Sequence[str]], Awaitable[Any]
]
PutShapes = Callable[[str, int, Sequence[Shape]], Awaitable[Any]]


class JobOptions(Struct, frozen=True):
    """How the job is run. `command` is what `trace KIND …` is added to."""

    every: float  # seconds between the beginnings of two runs
    traces: str  # as Spark calls the place
    folder: Path  # for logs and results
    kind: JobKind = "rebalance"
    mode: JobMode = "propose"
    time_limit: float | None = None  # seconds of a run; `every`, at most 1800, if not given
    window: float = 86_400.0  # seconds of traces that are looked at
    master: str = "local[*]"
    command: tuple[str, ...] = DZFLOW
    niceness: int = LOWEST_PRIORITY

    @property
    def longest(self) -> float:
        """Seconds after which a run is ended."""
        return min(self.every, _LONGEST) if self.time_limit is None else self.time_limit


class JobScheduler:
    """Runs the job. `configurators` names those that may own partitions.

    `owners` says which configurator each partition has now.
    """

    def __init__(
        self,
        etcd: Etcd,
        me: str,
        options: JobOptions,
        configurators: Callable[[], Sequence[str]],
        owners: Callable[[], Mapping[str, str]],
        start_plan: StartPlan,
        put_shapes: PutShapes,
        clock: Clock,
    ) -> None:
        self._etcd = etcd
        self._me = me
        self._options = options
        self._configurators = configurators
        self._owners = owners
        self._start_plan = start_plan
        self._put_shapes = put_shapes
        self._clock = clock

    async def run(self, fence: Compare) -> None:
        """Run the job whenever it is due, until cancelled; a run in progress is ended then.

        NotLeading when this monitor no longer leads.
        """
        since = self._clock.wall()
        while True:
            try:
                state = await self._take_over(fence)
                while True:
                    now = self._clock.wall()
                    await asyncio.sleep(seconds_until_due(self._options.every, now, since, state))
                    state = await self._run_once(fence, state)
            except NotLeading:
                raise
            except StoreError as error:
                log.warning("the job waits for etcd: %s", error)
            except Exception:  # whatever it is, moves and plans must go on
                log.exception("the job has failed, and is tried again")
            await asyncio.sleep(_RETRY)

    async def _take_over(self, fence: Compare) -> JobState | None:
        """The state of the job, in which no run is in progress."""
        found = await self._etcd.get(JOB)
        if found is None:
            return None
        try:
            stored = decode_state(found.value)
        except BadResult as error:
            log.error("%s cannot be read, and is replaced: %s", JOB, error)
            return None
        state = close_run(stored, self._clock.wall())
        if state is not None and state is not stored:
            await self._store(fence, state)
        return state

    async def _run_once(self, fence: Compare, state: JobState | None) -> JobState:
        """Run the job, and store its outcome."""
        options = self._options
        started = self._clock.wall()
        name = datetime.fromtimestamp(started, UTC).strftime("%Y%m%dT%H%M%S%f")
        output, result, scratch = (
            options.folder / f"{name}.{end}" for end in ("log", "json", "tmp")
        )
        running = begin_run(
            state, JobRun(options.mode, self._me, started, log=output.name, kind=options.kind)
        )
        await self._store(fence, running)
        outcome: JobOutcome = "failed"
        spaces: tuple[JobSpace, ...] = ()
        try:
            await asyncio.to_thread(_make_room, options.folder)
            words = command_words(
                options, self._configurators(), started, result, scratch / _OWNERS
            )
            code = await run_command(
                [*options.command, *words],
                output,
                scratch,
                options.longest,
                options.niceness,
                {_OWNERS: msgspec.json.encode(self._owners())},
            )
            why = "" if code == 0 else await asyncio.to_thread(_last_words, output, code)
            if code == 0:
                spaces = read_result(options.kind, await asyncio.to_thread(result.read_bytes))
                outcome = "done"
        except TimeoutError:
            outcome, why = "late", f"it took longer than {options.longest:g} s, and was ended"
        except (BadResult, OSError) as error:
            why = str(error)
        if options.mode == "apply":
            spaces = tuple([await self._apply(each) for each in spaces])
        if outcome != "done":
            log.warning("the job has no result (%s): %s; see %s", outcome, why, output)
        ended = end_run(running, outcome, self._clock.wall(), why, spaces)
        await self._store(fence, ended)
        return ended

    async def _apply(self, found: JobSpace) -> JobSpace:
        """Begin to carry out what is proposed for a space, if anything is."""
        plan, shapes = found.plan, found.shapes
        try:
            if plan:
                await self._start_plan(
                    plan.space, plan.version, plan.number, plan.map, plan.assignment, plan.reasons
                )
            elif shapes:
                await self._put_shapes(shapes.space, shapes.version, shapes.shapes)
            else:
                return found
        except DzflowError as error:
            return replace(found, refused=str(error))
        return replace(found, applied=True)

    async def _store(self, fence: Compare, state: JobState) -> None:
        stored = await self._etcd.transact([fence], [Put(JOB, encode_state(state))])
        if not stored.succeeded:
            raise NotLeading(f"{self._me} no longer leads; it gives up its job")


def command_words(
    options: JobOptions, configurators: Sequence[str], now: float, result: Path, owners: Path
) -> list[str]:
    """The arguments of the command `dzflow`; `owners` is a file with the owner of each partition.

    The traces name owners, too, but partitions may have moved since.
    """
    since = datetime.fromtimestamp(now - options.window, UTC).isoformat()
    words = ["trace", options.kind, options.traces, "--json", str(result)]
    words += ["--since", since, "--master", options.master]
    if options.kind == "rebalance":
        words += ["--owners", str(owners)]
        for name in configurators:
            words += ["--configurator", name]
    return words


def _make_room(folder: Path) -> None:
    """Make the folder, and delete the files of all but the last runs.

    No run is in progress, so temporary folders are those of runs that were killed with the service.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    for scratch in folder.glob("*.tmp"):
        shutil.rmtree(scratch, ignore_errors=True)
    runs = sorted({path.name.partition(".")[0] for path in folder.iterdir()})
    for run in runs[: max(0, len(runs) - _KEPT + 1)]:
        for end in ("log", "json"):
            (folder / f"{run}.{end}").unlink(missing_ok=True)


def _last_words(output: Path, code: int) -> str:
    """Why a command failed: the last line that it has written."""
    with output.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_BYTES))
        lines = file.read(_LAST_BYTES).decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f"it ended with {code}: {last}" if last else f"it ended with {code}"
