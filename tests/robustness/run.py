"""Injects faults under traffic: `python -m tests.robustness.run --seed N --minutes M`.

Each session has its own seed, one more than the session before; a violation is shown with the
command that repeats its session.
"""

import argparse
import asyncio
import shlex
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.robustness.session import Options, Result, run_session

_console = Console(highlight=False)


def main() -> None:
    """Run sessions until the time is up, or a violation is found."""
    given = _arguments().parse_args()
    settings = {"mode": given.mode} | ({"plan": given.plan} if given.plan else {})
    operator = {"yes": True, "no": False}.get(given.operator)
    options = Options(given.rounds, given.faults, given.arrangement, operator, given.only, settings)
    folder = Path(given.record or tempfile.mkdtemp(prefix="dzflow-robustness-"))
    end = time.monotonic() + 60 * given.minutes
    results: list[Result] = []
    start = time.monotonic()

    def say(text: str) -> None:
        _console.print(f"[dim]{time.monotonic() - start:7.1f}[/dim] {text}", markup=True)

    while time.monotonic() < end:
        seed = given.seed + len(results)
        _console.print(f"session with seed {seed}, record in {folder / str(seed)}")
        session = run_session(
            seed, options, folder / str(seed), say, lambda: time.monotonic() < end
        )
        results.append(asyncio.run(session))
        for violation in results[-1].violations:
            say(f"[red]violation[/red] {violation}")
        enough = given.sessions and len(results) >= given.sessions
        if enough or (results[-1].violations and not given.keep_going):
            break
    sys.exit(_report(results, given, folder))


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.robustness.run", description=__doc__)
    add = parser.add_argument
    add("--seed", type=int, default=1, help="seed of the first session")
    add("--minutes", type=float, default=30.0, help="after which no round begins")
    add("--sessions", type=int, default=0, help="at most this many; 0: as many as the time allows")
    add("--rounds", type=int, default=8, help="rounds per session")
    add("--faults", type=int, default=4, help="faults per round, at most")
    add("--mode", choices=("sna", "sea"), default="sna")
    add("--plan", choices=("legs", "lpm"), default="", help="default: drawn")
    add("--arrangement", choices=("whole", "wired", "lab"), default="", help="default: drawn")
    add(
        "--operator",
        choices=("yes", "no"),
        default="",
        help="whether one moves and cuts partitions, adds and ends configurators; default: drawn",
    )
    add("--only", default="", help="only faults with this in their name, as 'kill, plan'")
    add("--keep-going", action="store_true", help="go on with the next seed after a violation")
    add("--record", help="folder for the records; default: a temporary one")
    return parser


def _report(results: Sequence[Result], given: argparse.Namespace, folder: Path) -> int:
    """Print the faults and violations; returns the exit code."""
    counts = Counter((fault.kind, fault.target) for result in results for fault in result.faults)
    planned = Counter((each.kind.name, each.target) for r in results for each in r.planned)
    wrong = {
        (fault.kind, fault.target)
        for result in results
        if result.violations
        for fault in result.faults
    }
    table = Table("fault", "of", "planned", "struck", "result")
    for (kind, target), count in sorted(planned.items()):
        found = "see below" if (kind, target) in wrong else "clean"
        table.add_row(kind, target, str(count), str(counts[kind, target]), found)
    _console.print(table)
    rounds = sum(result.rounds for result in results)
    _console.print(f"{sum(counts.values())} faults in {rounds} rounds of {len(results)} sessions")
    failed = [result for result in results if result.violations]
    for result in failed:
        for violation in result.violations:
            _console.print(f"[red]violation[/red] {violation}", markup=True)
        _console.print(
            f"again: python -m tests.robustness.run --seed {result.seed} --sessions 1"
            f" --rounds {result.rounds} --faults {given.faults} --mode {given.mode}"
            + "".join(
                f" --{name} {shlex.quote(value)}"
                for name in ("plan", "arrangement", "operator", "only")
                if (value := getattr(given, name))
            )
        )
        _console.print(
            f"its record: python -m tests.robustness.checker {folder}/{result.seed}/record.jsonl"
        )
    return 1 if failed else 0


if __name__ == "__main__":
    main()
