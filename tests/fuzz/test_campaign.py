"""A block finds what is wrong with a target: errors, endless work, memory, broken rules."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from mmap import mmap
from pathlib import Path

import pytest

from tests.fuzz.campaign import BlockResult, Limits, TooMuchWork, cpu_limit, replay, run_block
from tests.fuzz.line_coverage import traced
from tests.fuzz.mutation import ByteInputs
from tests.fuzz.registry import TARGETS, split
from tests.fuzz.run import Job, missing
from tests.fuzz.target import REFUSED, Broken, Probe, Target


class Refusal(Exception):
    pass


def target(probe: Probe, cpu_seconds: float = 5.0) -> Target:
    @contextmanager
    def opened() -> Iterator[Probe]:
        yield probe

    return Target(
        name="toy",
        border="a toy",
        open=opened,
        inputs=lambda random: ByteInputs(random, [b"seed of the toy"]),
        refusals=(Refusal,),
        covers=(),
        share=1,
        cpu_seconds=cpu_seconds,
    )


def test_outcomes_are_counted() -> None:
    def probe(data: bytes) -> str:
        if len(data) % 3 == 0:
            raise Refusal(f"{len(data)} bytes")
        return "odd" if len(data) % 2 else f"{REFUSED}even"

    result = run_block(target(probe), 1, 0, 300)
    assert result.findings == []
    assert result.inputs == 300
    assert set(result.accepted) == {"odd"}
    assert set(result.refused) == {f"{REFUSED}even", f"{REFUSED}Refusal"}
    assert sum((*result.accepted.values(), *result.refused.values())) == 300


def test_a_block_can_be_repeated() -> None:
    seen: list[list[bytes]] = []
    for _ in range(2):
        inputs: list[bytes] = []

        def probe(data: bytes, inputs: list[bytes] = inputs) -> str:
            inputs.append(data)
            return str(len(data))

        run_block(target(probe), 7, 3, 200)
        seen.append(inputs)
    assert seen[0] == seen[1]


@pytest.mark.parametrize("error", [ValueError("x"), Broken("x"), RecursionError("x")])
def test_any_error_that_is_no_refusal_is_a_finding(error: Exception) -> None:
    def probe(data: bytes) -> str:
        if data.startswith(b"seed"):
            return "taken"
        raise error

    result = run_block(target(probe), 1, 0, 300)
    assert result.findings
    finding = result.findings[0]
    assert not finding.data.startswith(b"seed")
    assert type(error).__name__ in finding.reason
    with pytest.raises(type(error)):
        replay(target(probe), finding.data)


def test_endless_work_is_a_finding_even_if_errors_are_swallowed() -> None:
    def probe(_: bytes) -> str:
        while True:
            with suppress(Exception):
                sum(range(1_000))

    result = run_block(target(probe, cpu_seconds=0.05), 1, 0, 10)
    assert [finding.reason for finding in result.findings] == ["an input takes too much work"]


def test_a_limit_of_work_ends_with_its_context() -> None:
    def work_for_ever() -> None:
        with cpu_limit() as arm:
            arm(0.01)
            while True:
                sum(range(1_000))

    with pytest.raises(TooMuchWork):
        work_for_ever()
    sum(range(1_000_000))


def test_an_input_that_takes_much_memory_is_a_finding() -> None:
    def probe(_: bytes) -> str:
        bytearray(300 << 20)[::4096] = b"x" * (300 << 8)
        return "taken"

    # Other tests of this process may have taken more: its peak is forgotten.
    Path("/proc/self/clear_refs").write_text("5")
    result = run_block(target(probe), 1, 0, 2, Limits(peak_mb=100.0))
    assert "MB of memory" in result.findings[0].reason


def test_a_block_that_keeps_memory_is_a_finding() -> None:
    kept: list[mmap] = []

    def probe(_: bytes) -> str:
        kept.append(mmap(-1, 1 << 20))  # never memory that other tests have left
        kept[-1].write(bytes(1 << 20))
        return "taken"

    result = run_block(target(probe), 1, 0, 60, Limits(peak_mb=None, growth_mb=20.0))
    assert "grew by" in result.findings[0].reason


def test_inputs_are_split_by_share_and_what_was_done_is_not_repeated() -> None:
    counts = split(100_000, list(TARGETS.values()))
    assert sum(counts.values()) == pytest.approx(100_000, abs=len(TARGETS))
    jobs = list(missing(TARGETS.values(), 100_000, 1, []))
    assert sum(job.inputs for job in jobs) == sum(counts.values())
    done = [_done(job) for job in jobs[1:]]
    assert list(missing(TARGETS.values(), 100_000, 1, done)) == jobs[:1]
    assert list(missing(TARGETS.values(), 10_000, 1, [*done, _done(jobs[0])])) == []


def _done(job: Job) -> BlockResult:
    return BlockResult(job.target, job.seed, job.block, job.inputs)


def test_lines_that_were_executed_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "traced_toy.py").write_text(
        "def toy(x):\n    if x:\n        return 1\n    return 2\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with traced(["traced_toy"]) as lines:
        import traced_toy  # type: ignore[import-not-found]

        traced_toy.toy(True)
    assert lines.share == pytest.approx(2 / 3)
