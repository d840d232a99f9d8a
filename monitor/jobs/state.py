"""What is known of the scheduled job: its runs, and how many there were. Pure.

One document in etcd, which the leader writes and every API process shows.
"""

from typing import Literal, TypeVar, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from configurators.engine.partition_map import PartitionMap
from dzflow.errors import DzflowError
from dzflow.index import Shape

T = TypeVar("T")

JobKind = Literal["rebalance", "shapes"]
"""The command of `dzflow trace` that is run."""

JobMode = Literal["propose", "apply"]
JobOutcome = Literal["done", "failed", "late", "interrupted"]
"""It has a result; it has none; its time was over; or its monitor stopped leading."""

JOB_OUTCOMES: tuple[JobOutcome, ...] = get_args(JobOutcome)

_MOST_BYTES = 512 << 10  # of the document; etcd takes 1.5 MiB
_MOST_TEXT = 500


class BadResult(DzflowError):
    """The file that a job has written is not its result."""


class ProposedPlan(Struct, frozen=True):
    """A plan for the map of a space, in the form that `POST /partitions/plan` takes."""

    space: str
    version: int
    number: int
    map: PartitionMap
    assignment: dict[str, str] = {}
    reasons: tuple[str, ...] = ()


class ProposedShapes(Struct, frozen=True):
    """A dictionary for a space; version and shapes are what `PUT /spaces/{name}/shapes` takes."""

    space: str
    version: int
    shapes: tuple[Shape, ...]
    reasons: tuple[str, ...] = ()


class JobSpace(Struct, frozen=True):
    """The result of a run for a space. Without a proposal, `why` says why there is none.

    The job `rebalance` gives a plan, and the job `shapes` a dictionary. `refused` says why the
    service has not begun to carry it out, if it was to.
    """

    space: str
    imbalance: float | None = None  # load of the busiest configurator over the mean
    predicted: float | None = None  # the same, with the plan
    plan: ProposedPlan | None = None
    why: str = ""
    applied: bool = False
    refused: str = ""
    shares: dict[str, float] = {}  # of the work, by configurator; empty in mode sea
    predicted_shares: dict[str, float] = {}  # the same, with the plan
    shapes: ProposedShapes | None = None
    unwanted: float | None = None  # share of the events that nobody wants, in regions of filters
    predicted_unwanted: float | None = None  # the same, with the dictionary


class JobRun(Struct, frozen=True):
    """A run of the job; one in progress has no outcome yet. Times are seconds since 1970."""

    mode: JobMode
    by: str  # the API process
    started: float
    ended: float | None = None
    outcome: JobOutcome | None = None
    why: str = ""  # it has no result
    spaces: tuple[JobSpace, ...] = ()
    log: str = ""  # its name in the folder `logs/jobs` of that process
    kind: JobKind = "rebalance"


class JobState(Struct, frozen=True):
    """The last run that has ended, the one in progress, and counts of all runs."""

    last: JobRun | None = None
    running: JobRun | None = None
    last_success: float | None = None  # when it ended
    counts: dict[str, int] = {}  # of ended runs, by outcome


def begin_run(state: JobState | None, run: JobRun) -> JobState:
    """The state when a run has begun; the last result stays."""
    return replace(state or JobState(), running=run)


def end_run(
    state: JobState,
    outcome: JobOutcome,
    now: float,
    why: str = "",
    spaces: tuple[JobSpace, ...] = (),
) -> JobState:
    """The state when the run in progress has ended."""
    assert state.running is not None
    run = replace(
        state.running, ended=now, outcome=outcome, why=why[:_MOST_TEXT].strip(), spaces=spaces
    )
    counts = {**state.counts, outcome: state.counts.get(outcome, 0) + 1}
    success = now if outcome == "done" else state.last_success
    return JobState(run, None, success, counts)


def close_run(state: JobState | None, now: float) -> JobState | None:
    """The state for a monitor that begins to lead: a run of the former leader has been ended."""
    if state is None or state.running is None:
        return state
    why = f"{state.running.by} has stopped, no longer leads, or could not store the result"
    return end_run(state, "interrupted", now, why)


def encode_state(state: JobState) -> bytes:
    """The document; proposals for which there is no room are left out, and `why` says so."""
    data = msgspec.json.encode(state)
    if len(data) <= _MOST_BYTES or state.last is None:
        return data
    text = "the proposal is too large to be shown; the file beside the log of the run has it"
    short = tuple(
        replace(
            each,
            plan=None,
            shapes=None,
            why=text if each.plan or each.shapes else each.why[:_MOST_TEXT],
        )
        for each in state.last.spaces
    )
    return msgspec.json.encode(replace(state, last=replace(state.last, spaces=short)))


def decode_state(data: bytes) -> JobState:
    """The state in a document; BadResult if it is none."""
    return _decode(data, JobState)


def read_result(kind: JobKind, data: bytes) -> tuple[JobSpace, ...]:
    """What the file that the command writes with `--json` says of each space."""
    if kind == "shapes":
        return tuple(_learned(each) for each in _decode(data, _ShapesResult).spaces)
    return tuple(_planned(each) for each in _decode(data, _PlansResult).spaces)


def _planned(found: "_PlannedSpace") -> JobSpace:
    return JobSpace(
        found.space,
        found.before.imbalance,
        found.after.imbalance,
        found.plan,
        found.why,
        shares=found.before.shares,
        predicted_shares=found.after.shares,
    )


def _learned(found: "_LearnedSpace") -> JobSpace:
    return JobSpace(
        found.space,
        why=found.why,
        shapes=found.proposal,
        unwanted=found.before.unwanted if found.before else None,
        predicted_unwanted=found.after.unwanted if found.after else None,
    )


class _Balance(Struct, frozen=True):
    imbalance: float
    shares: dict[str, float] = {}


class _PlannedSpace(Struct, frozen=True):
    space: str
    before: _Balance
    after: _Balance
    plan: ProposedPlan | None
    why: str


class _PlansResult(Struct, frozen=True):
    """The part of the result of `rebalance` that is shown."""

    spaces: tuple[_PlannedSpace, ...]


class _Deliveries(Struct, frozen=True):
    unwanted: float


class _LearnedSpace(Struct, frozen=True):
    space: str
    before: _Deliveries | None
    after: _Deliveries | None
    proposal: ProposedShapes | None
    why: str


class _ShapesResult(Struct, frozen=True):
    """The same of `shapes`."""

    spaces: tuple[_LearnedSpace, ...]


def _decode(data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise BadResult(f"this is not a result of the job: {error}") from None
