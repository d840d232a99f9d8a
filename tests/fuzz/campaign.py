"""Runs blocks of inputs against a target, and collects what came of them.

A block is decided by target, seed and number alone, so blocks can run in any order, in any process,
and again. Inputs that meet with something new (a reason for a refusal, a kind of answer) become
seeds of later inputs of their block.
"""

import gc
import hashlib
import re
import resource
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from types import FrameType

from msgspec import Struct

from tests.fuzz.target import REFUSED, Probe, Target

MAX_FINDINGS = 20  # of one block, with different causes
_VARIABLE = re.compile(r"""['"`].*['"`]|0x[0-9a-f]+|[0-9]+(\.[0-9]+)?|\S{40,}""", re.DOTALL)
_PAGE = resource.getpagesize()


class TooMuchWork(KeyboardInterrupt):
    """An input takes more processor time than the target allows.

    It is a KeyboardInterrupt because event loops hand these, and no other errors, to their caller.
    """


class Limits(Struct, frozen=True):
    """When an input, or a whole block, takes too much; None: no limit."""

    cpu_factor: float = 1.0  # of the target's limit of processor time
    peak_mb: float | None = 256.0  # by which one input may raise the peak of memory
    growth_mb: float | None = 128.0  # of the second half of a block


class Finding(Struct, frozen=True):
    """An input that broke something; `data` is empty if the whole block did."""

    target: str
    reason: str
    data: bytes
    details: str = ""

    @property
    def name(self) -> str:
        """A short name, the same for the same input."""
        return hashlib.sha256(self.data or self.reason.encode()).hexdigest()[:12]


class BlockResult(Struct):
    """What came of one block."""

    target: str
    seed: int
    block: int
    inputs: int = 0
    seconds: float = 0.0
    grown_mb: float = 0.0  # memory, in the second half
    slowest: float = 0.0  # seconds of processor time of one input
    accepted: dict[str, int] = {}
    refused: dict[str, int] = {}
    findings: list[Finding] = []


def run_block(
    target: Target,
    seed: int,
    block: int,
    inputs: int,
    limits: Limits | None = None,
    each: Callable[[int], None] = lambda _: None,
) -> BlockResult:
    """Give a block of inputs to a target. `each` is called after every input with their number."""
    limits = limits or Limits()
    source = target.inputs(Random(f"{target.name} {seed} {block}"))
    result = BlockResult(target.name, seed, block)
    accepted: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    known: set[str] = set()
    causes: set[str] = set()
    started = time.perf_counter()
    half = 0.0
    with target.open() as probe, cpu_limit() as arm:
        peak = _peak_mb()
        for number in range(1, inputs + 1):
            data = source.next()
            arm(limits.cpu_factor * target.cpu_seconds)
            before = time.process_time()
            reason = ""
            details = ""
            try:
                outcome = probe(data)
                (refused if outcome.startswith(REFUSED) else accepted)[outcome] += 1
            except target.refusals as error:
                outcome = signature(error)
                refused[REFUSED + type(error).__name__] += 1
            except TooMuchWork:
                arm(0.0)
                outcome = reason = "an input takes too much work"
                details = traceback.format_exc()
            except Exception as error:
                arm(0.0)
                outcome = reason = f"{type(error).__name__}: {error}"[:300]
                details = traceback.format_exc()
            result.slowest = max(result.slowest, time.process_time() - before)
            if limits.peak_mb is not None and (now := _peak_mb()) != peak:
                if now - peak > limits.peak_mb:
                    reason = reason or f"an input took {now - peak:.0f} MB of memory"
                peak = now
            if reason:
                if _cause(reason, details) not in causes:
                    causes.add(_cause(reason, details))
                    result.findings.append(Finding(target.name, reason, data, details))
                if len(result.findings) >= MAX_FINDINGS or "too much" in reason:
                    result.inputs = number
                    break  # the state may be half changed
            if outcome not in known:
                known.add(outcome)
                source.learn(data)
            each(number)
            if limits.growth_mb is not None and number == inputs // 2:
                half = _resident_mb()
        else:
            result.inputs = inputs
            if limits.growth_mb is not None:
                result.grown_mb = max(0.0, _resident_mb() - half)
                if result.grown_mb > limits.growth_mb:
                    text = f"block {block} grew by {result.grown_mb:.0f} MB in its second half"
                    result.findings.append(Finding(target.name, text, b""))
    result.seconds = time.perf_counter() - started
    result.accepted, result.refused = dict(accepted), dict(refused)
    return result


def replay(target: Target, data: bytes) -> str:
    """Give one input to a target, without limits; what the target did with it, or its error."""
    with target.open() as probe:
        return attempt(target, probe, data)


def attempt(target: Target, probe: Probe, data: bytes) -> str:
    """Give one input to an open target; errors that are not refusals are raised."""
    try:
        return probe(data)
    except target.refusals as error:
        return f"{REFUSED}{type(error).__name__}: {error}"


def signature(error: Exception) -> str:
    """The kind of a refusal: its type, and its text without what varies from input to input."""
    return f"{type(error).__name__}: {_VARIABLE.sub('…', str(error)[:400])[:80]}"


def _cause(reason: str, details: str) -> str:
    """The kind of an error, and where it was raised: findings with the same cause count once."""
    places = re.findall(r'File "([^"]*)", line (\d+)', details)
    return f"{_VARIABLE.sub('…', reason)[:60]} {places[-1:]}"


@contextmanager
def cpu_limit() -> Iterator[Callable[[float], None]]:
    """A call that raises TooMuchWork after so many seconds of processor time; 0 ends the limit."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TooMuchWork

    def arm(seconds: float) -> None:
        signal.setitimer(signal.ITIMER_PROF, seconds)

    before = signal.signal(signal.SIGPROF, stop)
    try:
        yield arm
    finally:
        arm(0.0)
        signal.signal(signal.SIGPROF, before)


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _resident_mb() -> float:
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * _PAGE / 2**20
