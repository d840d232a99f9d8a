"""Fuzzes the border: `python -m tests.fuzz.run --inputs 1000000 --seed 1 --jobs 2`.

A pass can be interrupted and continued: finished blocks are written to the folder, and a run with
the same folder, seed and number of inputs does the rest. `--target` limits it to some targets.
"""

import argparse
import logging
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from tests.fuzz.campaign import BlockResult, Finding, Limits, replay, run_block
from tests.fuzz.line_coverage import traced
from tests.fuzz.registry import TARGETS, split
from tests.fuzz.target import REFUSED, Target

_MOST_REASONS = 4  # of refusals and answers that the table shows
_SAY_EVERY = 10.0  # seconds
_TRACED = 2_000  # inputs of each target that coverage is measured with
_console = Console(highlight=False, width=160)


class Job(Struct, frozen=True):
    """A block that is to be run."""

    target: str
    seed: int
    block: int
    inputs: int
    short: bool = False


def main() -> None:
    """Run the command line."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Otherwise the order of sets of strings differs, and no block could be repeated.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.fuzz.run", *sys.argv[1:]])  # noqa: S606
    given = _arguments().parse_args()
    _be_quiet()
    targets = [TARGETS[name] for name in given.target or TARGETS]
    if given.replay:
        sys.exit(_replay(targets, given.replay))
    folder = Path(given.folder or f"build/fuzz/{given.seed}")
    folder.mkdir(parents=True, exist_ok=True)
    results = _read(folder, given.seed)
    if given.short:
        jobs = [Job(target.name, given.seed, 0, target.short, short=True) for target in targets]
    else:
        jobs = list(missing(targets, given.inputs, given.seed, results))
    _run(jobs, given.jobs, folder, results)
    wanted = {target.name for target in targets}
    shown = [result for result in results if result.target in wanted]
    coverage = _coverage(targets, given.seed) if given.coverage else {}
    _console.print(table(shown, coverage))
    sys.exit(_report(shown, folder))


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description=__doc__)
    add = parser.add_argument
    add("--inputs", type=int, default=100_000, help="of all targets together")
    add("--target", action="append", choices=TARGETS, help="only this one; may be repeated")
    add("--short", action="store_true", help="the pass of `make test`: always the same inputs")
    add("--seed", type=int, default=1)
    add("--jobs", type=int, default=1, help="number of processes")
    add("--folder", help="for results and findings; default: build/fuzz/SEED")
    add("--coverage", action="store_true", help=f"measure lines reached by {_TRACED} inputs each")
    add("--replay", help="give the input in this file to the targets, and say what they do")
    return parser


def _be_quiet() -> None:
    """Refused inputs are logged, thousands per second; only errors count here."""
    logging.getLogger().setLevel(logging.ERROR)
    logging.getLogger().addHandler(logging.NullHandler())


def missing(
    targets: Iterable[Target], inputs: int, seed: int, done: Iterable[BlockResult]
) -> Iterator[Job]:
    """The blocks that are left to run."""
    finished = {(result.target, result.block): result.inputs for result in done}
    listed = list(targets)
    for name, count in split(inputs, listed).items():
        size = TARGETS[name].block
        for block, start in enumerate(range(0, count, size)):
            wanted = min(size, count - start)
            if finished.get((name, block), 0) < wanted:
                yield Job(name, seed, block, wanted)


def _run(jobs: list[Job], processes: int, folder: Path, results: list[BlockResult]) -> None:
    """Run blocks, and write each result and its findings as soon as it is there."""
    # The slow targets first, so that no process is left alone with them at the end.
    jobs.sort(key=lambda job: (job.block, TARGETS[job.target].share))
    began = said = time.monotonic()
    done = 0
    with (folder / "blocks.jsonl").open("ab") as file:
        for result in _results(jobs, processes):
            results.append(result)
            done += result.inputs
            file.write(msgspec.json.encode(result) + b"\n")
            file.flush()
            for finding in result.findings:
                _save(folder, finding)
            now = time.monotonic()
            if now - said > _SAY_EVERY:
                said = now
                found = sum(len(result.findings) for result in results)
                _console.print(f"{now - began:7.0f} s  {done:>12,} inputs  {found} findings")


def _results(jobs: list[Job], processes: int) -> Iterator[BlockResult]:
    if processes == 1:
        yield from map(_work, jobs)
        return
    with multiprocessing.get_context("spawn").Pool(processes, _be_quiet) as pool:
        yield from pool.imap_unordered(_work, jobs)


def _work(job: Job) -> BlockResult:
    # The short pass decides nothing by time or memory: it runs beside other tests. What would never
    # end is ended all the same.
    limits = Limits(10.0, None, None) if job.short else Limits()
    return run_block(TARGETS[job.target], job.seed, job.block, job.inputs, limits)


def _read(folder: Path, seed: int) -> list[BlockResult]:
    """The results of earlier runs; the last result of a block counts."""
    path = folder / "blocks.jsonl"
    if not path.exists():
        return []
    decode = msgspec.json.Decoder(BlockResult).decode
    found = [decode(line) for line in path.read_bytes().splitlines()]
    return list({(r.target, r.block): r for r in found if r.seed == seed}.values())


def _save(folder: Path, finding: Finding) -> None:
    at = folder / "findings" / finding.target
    at.mkdir(parents=True, exist_ok=True)
    path = at / f"{finding.name}.bin"
    path.write_bytes(finding.data)
    again = f"python -m tests.fuzz.run --target {finding.target} --replay {path}"
    path.with_suffix(".txt").write_text(f"{finding.reason}\n\n{again}\n\n{finding.details}")


def _replay(targets: list[Target], file: str) -> int:
    data = Path(file).read_bytes()
    for target in targets:
        _console.print(f"{target.name}: {replay(target, data)}", markup=False)
    return 0


def _coverage(targets: Iterable[Target], seed: int) -> dict[str, float]:
    found = {}
    for target in targets:
        with traced(target.covers) as lines:
            run_block(target, seed, 0, _TRACED, Limits(cpu_factor=50.0, peak_mb=None))
        found[target.name] = lines.share
    return found


def table(results: Iterable[BlockResult], coverage: dict[str, float]) -> Table:
    """What came of all blocks, by target."""
    columns = ("target", "inputs", "per s", "accepted", "refused", "most frequent outcomes")
    shown = Table(*columns, "lines", "slowest", "memory", "findings")
    listed = list(results)
    total = Counter[str]()
    for name, target in TARGETS.items():
        mine = [result for result in listed if result.target == name]
        if not mine:
            continue
        inputs = sum(result.inputs for result in mine)
        seconds = sum(result.seconds for result in mine)
        accepted, refused = Counter[str](), Counter[str]()
        for result in mine:
            accepted.update(result.accepted)
            refused.update(result.refused)
        findings = sum(len(result.findings) for result in mine)
        total.update(inputs=inputs, findings=findings)
        shown.add_row(
            f"{name} ({target.border})",
            f"{inputs:,}",
            f"{inputs / max(seconds, 1e-9):,.0f}",
            f"{accepted.total() / max(1, inputs):.0%}",
            f"{refused.total() / max(1, inputs):.0%}",
            _most_frequent(accepted + refused),
            f"{coverage[name]:.0%}" if name in coverage else "",
            f"{max(result.slowest for result in mine):.2f} s",
            f"+{max(result.grown_mb for result in mine):.0f} MB",
            str(findings),
        )
    shown.add_row("all", f"{total['inputs']:,}", *[""] * 7, str(total["findings"]))
    return shown


def _most_frequent(outcomes: Counter[str]) -> str:
    whole = max(1, outcomes.total())
    most = outcomes.most_common(_MOST_REASONS)
    text = ", ".join(f"{name.removeprefix(REFUSED)} {count / whole:.0%}" for name, count in most)
    return text + (f", {len(outcomes) - len(most)} more" if len(outcomes) > len(most) else "")


def _report(results: Iterable[BlockResult], folder: Path) -> int:
    found = [finding for result in results for finding in result.findings]
    for finding in found[:50]:
        where = folder / "findings" / finding.target / f"{finding.name}.txt"
        _console.print(f"{finding.target}: {finding.reason[:200]}; see {where}", markup=False)
    return 1 if found else 0


if __name__ == "__main__":
    main()
