"""Runs many seeds: `python -m tests.simulation.run --seeds 10000 [--from N] [--jobs 2]`.

With `--replay SEED` it runs one seed and prints every step. With `--serve` it reads lines from its
input, each a JSON list of an output file and options, and runs each in a forked process: the
imports take as long as a dozen seeds.
"""

import argparse
import gc
import json
import logging
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from contextlib import redirect_stdout
from multiprocessing import get_context
from pathlib import Path
from typing import Any

_COLLECT = 20  # runs between collections of garbage


def main() -> None:
    """Run the command line."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Otherwise the order of sets of strings differs, and no run could be repeated.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation.run", *sys.argv[1:]])  # noqa: S606
    if sys.argv[1:] == ["--serve"]:
        _serve()
    else:
        sys.exit(_execute(sys.argv[1:]))


def _serve() -> None:
    """Run each line of the input in a forked process, and answer with its exit code."""
    import tests.simulation.mutations
    import tests.simulation.scenario  # noqa: F401 - the forked processes find it loaded

    for line in sys.stdin:
        output, *words = json.loads(line)
        child = os.fork()
        if not child:
            os._exit(_write_output(Path(output), words))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _write_output(path: Path, words: Sequence[str]) -> int:
    """Run the command line with a file for its output; the exit code."""
    with path.open("w") as file, redirect_stdout(file):
        try:
            return _execute(words)
        except BaseException:
            traceback.print_exc(file=file)
            return 2


def _execute(words: Sequence[str]) -> int:
    """Run the command line; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds to run")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first seed")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    parser.add_argument("--replay", type=int, help="run this seed alone and print each step")
    parser.add_argument("--mode", choices=("sna", "sea"), help="run all seeds in this mode")
    parser.add_argument("--guests", action="store_true", help="let hosts come and go")
    parser.add_argument("--mutation", default="", help="build in this bug")
    parser.add_argument("--stop", type=int, default=5, help="stop after so many failed seeds")
    given = parser.parse_args(words)
    if given.mutation:
        from tests.simulation.mutations import MUTATIONS

        given.mode = MUTATIONS[given.mutation].mode
        given.guests = MUTATIONS[given.mutation].guests
    logging.getLogger().setLevel(logging.ERROR)
    logging.lastResort = None
    if given.replay is not None:
        return _replay(given.replay, given.mode, given.mutation, given.guests)
    return _run_all(given)


def _replay(seed: int, mode: Any, mutation: str, guests: bool) -> int:
    from tests.simulation.mutations import MUTATIONS, mutated
    from tests.simulation.scenario import run

    with mutated(mutation):
        only = MUTATIONS[mutation].faults if mutation else ()
        result = run(seed, True, only, mode, guests)
    for step in result.steps or ():
        print(step)
    for violation in result.violations:
        print(violation)
    return bool(result.violations)


def _run_all(given: argparse.Namespace) -> int:
    began = time.perf_counter()
    jobs = given.jobs
    seeds = range(given.first, given.first + given.seeds)
    parts = [(seeds[n::jobs], given, n == 0) for n in range(jobs)]
    if jobs > 1:
        with get_context("fork").Pool(jobs) as pool:
            results = pool.map(_run_part, parts)
    else:
        results = [_run_part(parts[0])]
    totals: Counter[str] = sum((one[0] for one in results), Counter())
    failed = sorted(seed for one in results for seed in one[1])
    seconds = time.perf_counter() - began
    done = totals.pop("seeds")
    print(
        f"{done} seeds in {seconds:.1f} s on {jobs} core(s),"
        f" {done / totals.pop('cpu') * 1000:.0f} per second of CPU:"
        f" {totals.pop('requests')} requests, {totals.pop('events')} events,"
        f" {totals.pop('callbacks')} callbacks"
    )
    print("faults:", ", ".join(f"{kind} {count}" for kind, count in sorted(totals.items())))
    print(f"{len(failed)} seeds with violations{f': {failed}' if failed else ''}")
    return bool(failed)


def _run_part(part: tuple[range, argparse.Namespace, bool]) -> tuple["Counter[str]", list[int]]:
    from tests.simulation.mutations import MUTATIONS, mutated
    from tests.simulation.scenario import run

    seeds, given, tells = part
    mutation = given.mutation
    totals: Counter[str] = Counter()
    failed: list[int] = []
    told = time.perf_counter()
    only = MUTATIONS[mutation].faults if mutation else ()
    gc.freeze()
    with mutated(mutation):
        for number, seed in enumerate(seeds):
            result = run(seed, only=only, mode=given.mode, guests=given.guests)
            if number % _COLLECT == 0:
                gc.collect()
            totals["seeds"] += 1
            totals["cpu"] = int(time.process_time() * 1000)
            totals["requests"] += result.requests
            totals["events"] += result.events
            totals["callbacks"] += result.callbacks
            totals.update(result.faults)
            if result.violations:
                failed.append(seed)
                print(f"seed {seed}: {len(result.violations)} violations")
                for violation in result.violations[:5]:
                    print(f"  {str(violation)[:600]}")
                extra = f" --mode {given.mode}" if given.mode and not mutation else ""
                extra += f" --mutation {mutation}" if mutation else ""
                extra += " --guests" if given.guests and not mutation else ""
                print(f"  to see it: python -m tests.simulation.run --replay {seed}{extra}")
                if len(failed) >= given.stop:
                    break
            if tells and time.perf_counter() > told + 10:
                told = time.perf_counter()
                print(f"  {number + 1} of {len(seeds)}", flush=True)
    return totals, failed


if __name__ == "__main__":
    main()
