"""The leader runs the job again and again, shows what came of it, and leaves nothing behind."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from configurators.store.etcd.client import Etcd
from configurators.store.keys import LEADER
from dispatcher.dispatcher import Dispatcher
from dispatcher.options import DispatcherOptions
from monitor.jobs.scheduler import DZFLOW, JobOptions, command_words
from monitor.jobs.state import JobKind, JobMode, JobState
from monitor.monitor import Monitor
from tests.etcd import TestEtcd
from tests.metrics import families, value
from tests.service import processes_with
from tests.stack import PATIENT_MOVES, STILL, TOKEN, Stack, StackOptions
from tests.support import until_sync

STAND_IN = Path(__file__).with_name("stand_in.py")
SCHEMA = {"attributes": [{"name": "price", "type": "int", "min": 0, "max": 1023}]}
EVERY = 0.5  # seconds


class Job:
    """A control plane that runs the stand-in again and again."""

    def __init__(self, folder: Path, how: str) -> None:
        self.folder = folder
        self.stack: Stack
        self.client: httpx.Client
        self.tell(how)

    def tell(self, how: str) -> None:
        """Say what the next runs do."""
        draft = self.folder / "next"
        draft.write_text(how)
        draft.replace(self.folder / "how")

    def calls(self) -> list[dict[str, Any]]:
        path = self.folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def shown(self) -> dict[str, Any]:
        found = self.client.get("/jobs").raise_for_status().json()
        assert isinstance(found, dict)
        return found

    def running_by(self) -> str | None:
        """The process that runs the job at present."""
        state = self.shown()["state"]
        return state["running"]["by"] if state and state["running"] else None

    def last(self, outcome: str) -> dict[str, Any]:
        """The first run that is seen to have ended so."""
        found: list[dict[str, Any]] = []

        def seen() -> bool:
            state = self.shown()["state"]
            if state and state["last"] and state["last"]["outcome"] == outcome:
                found.append(state["last"])
            return bool(found)

        until_sync(seen)
        return found[0]


@contextmanager
def scheduled(
    etcd: TestEtcd,
    folder: Path,
    how: str,
    mode: JobMode = "propose",
    time_limit: float = 600.0,
    every: float = EVERY,
    kind: JobKind = "rebalance",
) -> Iterator[Job]:
    """A control plane that runs the job; afterwards, no process and no temporary file is left."""
    job = Job(folder, how)
    options = JobOptions(
        every,
        "/the/traces",
        folder / "jobs",
        kind,
        mode,
        time_limit,
        window=3600.0,
        command=(sys.executable, str(STAND_IN), str(folder)),
        niceness=0,  # on a busy machine, the lowest priority may get no time for a minute
    )
    with Stack(etcd.access(), StackOptions(jobs=options)) as stack:
        job.stack = stack
        with httpx.Client(base_url=stack.url, timeout=60) as job.client:
            yield job
    assert processes_with(str(folder)) == {}
    assert list((folder / "jobs").glob("*.tmp")) == []


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has waited for yet does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def result(plan: dict[str, Any] | None, why: str = "") -> str:
    figures = {"before": {"imbalance": 2.5}, "after": {"imbalance": 1.25}}
    return json.dumps({"spaces": [{"space": "stocks", "plan": plan, "why": why, **figures}]})


def test_a_result_is_shown_in_rest_metrics_and_stream(
    etcd_server: TestEtcd, tmp_path: Path
) -> None:
    (tmp_path / "result").write_text(result(None, "all is well"))
    # Left behind by a service that was killed; `scheduled` checks that it is gone.
    left = tmp_path / "jobs" / "20200101T000000000000.tmp"
    left.mkdir(parents=True)
    (left / "shuffle").write_text("of Spark")
    with scheduled(etcd_server, tmp_path, "done") as job:
        last = job.last("done")
        assert last["mode"] == "propose"
        assert last["by"] == job.stack.dispatcher.id
        assert last["started"] <= last["ended"]
        (space,) = last["spaces"]
        assert (space["space"], space["plan"], space["why"]) == ("stocks", None, "all is well")
        assert (space["imbalance"], space["predicted"]) == (2.5, 1.25)
        assert job.shown()["every"] == EVERY
        assert value(job.client, "dzflow_jobs_total", outcome="done") >= 1
        assert value(job.client, "dzflow_jobs_total", outcome="late") == 0
        (success,) = families(job.client)["dzflow_job_success_time_seconds"].samples
        assert success.value >= last["ended"]
        with job.client.stream("GET", "/stream?types=job") as stream:
            lines = (line for line in stream.iter_lines() if line.startswith("event:"))
            assert next(lines) == "event: job"
        call = job.calls()[0]
        assert call["owners"] == {
            each["id"]: each["configurator"]
            for each in job.client.get("/partitions").json()["items"]
        }
        words = call["words"]
        assert words[:4] == ["trace", "rebalance", "/the/traces", "--json"]
        assert words[words.index("--configurator") + 1] == "configurator-0"
        assert words[words.index("--master") + 1] == "local[*]"
        assert "--apply" not in words
        assert "--token" not in words


def test_only_the_last_runs_are_kept_and_nobody_else_reads_them(
    etcd_server: TestEtcd, tmp_path: Path
) -> None:
    (tmp_path / "result").write_text(result(None, "all is well"))
    with scheduled(etcd_server, tmp_path, "done", every=0.1) as job:
        until_sync(lambda: len(job.calls()) > 8, timeout=300)
    logs = list((tmp_path / "jobs").glob("*.log"))
    assert 0 < len(logs) <= 5
    for path in (tmp_path / "jobs", *logs):
        assert path.stat().st_mode & 0o077 == 0
    assert any("starting Spark" in path.read_text() for path in logs)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("fail", "it ended with 1: error: the traces are not there"),
        ("garbage", "this is not a result of the job"),
        ("nothing", "No such file or directory"),
    ],
)
def test_a_run_without_a_result_says_why_and_the_next_one_comes(
    etcd_server: TestEtcd, tmp_path: Path, how: str, said: str
) -> None:
    (tmp_path / "result").write_text(result(None))
    with scheduled(etcd_server, tmp_path, how) as job:
        last = job.last("failed")
        assert said in last["why"]
        assert (tmp_path / "jobs" / last["log"]).suffix == ".log"
        assert value(job.client, "dzflow_jobs_total", outcome="failed") >= 1
        assert families(job.client)["dzflow_job_success_time_seconds"].samples == []
        job.tell("done")
        assert job.last("done")["why"] == ""


def test_a_run_that_takes_too_long_is_ended(etcd_server: TestEtcd, tmp_path: Path) -> None:
    with scheduled(etcd_server, tmp_path, "hang", time_limit=0.5) as job:
        # However far its process has come by then.
        assert "it took longer than 0.5 s" in job.last("late")["why"]


def test_a_run_ends_with_the_leadership(etcd_server: TestEtcd, tmp_path: Path) -> None:
    with scheduled(etcd_server, tmp_path, "hang") as job:
        until_sync(job.calls)
        first = job.calls()[0]
        until_sync(lambda: job.running_by() == job.stack.dispatcher.id)
        (tmp_path / "result").write_text(result(None))
        job.tell("done")

        async def depose() -> None:
            async with Etcd(job.stack.access) as etcd:
                await etcd.delete(LEADER)

        job.stack.run(depose())
        until_sync(lambda: not is_alive(first["pid"]) and not is_alive(first["other"]))
        # It leads again, and has found what its former term left behind.
        job.last("done")
        assert job.shown()["state"]["counts"]["interrupted"] >= 1


def test_another_process_goes_on_with_the_schedule(etcd_server: TestEtcd, tmp_path: Path) -> None:
    with scheduled(etcd_server, tmp_path, "hang") as job:
        until_sync(job.calls)
        (first,) = job.calls()
        stack, options = job.stack, job.stack.options.jobs
        assert options

        async def second() -> tuple[Dispatcher, Monitor]:
            dispatcher = await Dispatcher(stack.access, TOKEN, DispatcherOptions()).__aenter__()
            how = replace(options, folder=tmp_path / "other")
            monitor = Monitor(dispatcher, options=STILL, limits=PATIENT_MOVES, jobs=how)
            return dispatcher, await monitor.__aenter__()

        async def leave(*parts: Any) -> None:
            for part in parts:
                await part.__aexit__(None, None, None)

        dispatcher, monitor = stack.run(second())

        def known() -> JobState:
            return monitor.job_results.state or JobState()

        try:
            until_sync(lambda: known().running is not None)
            running = known().running
            assert running
            assert running.by == stack.dispatcher.id
            assert job.calls() == [first]
            (tmp_path / "result").write_text(result(None))
            job.tell("done")
            stack.run(leave(stack.monitor))
            assert not is_alive(first["pid"])
            assert not is_alive(first["other"])
            until_sync(lambda: known().counts.get("done"))
            last = known().last
            assert last
            assert (last.by, known().counts["interrupted"]) == (dispatcher.id, 1)
            assert (tmp_path / "other" / last.log).exists()
        finally:
            stack.run(leave(monitor, dispatcher))
    assert list((tmp_path / "other").glob("*.tmp")) == []


def test_a_run_ends_with_the_service(etcd_server: TestEtcd, tmp_path: Path) -> None:
    with scheduled(etcd_server, tmp_path, "hang") as job:
        until_sync(job.calls)
    for call in job.calls():
        assert not is_alive(call["pid"])
        assert not is_alive(call["other"])
        assert not Path(call["scratch"]).exists()


@pytest.mark.parametrize("mode", ["propose", "apply"])
def test_plans_are_shown_and_only_carried_out_if_that_is_wanted(
    etcd_server: TestEtcd, tmp_path: Path, mode: JobMode
) -> None:
    os.mkfifo(tmp_path / "go")
    with scheduled(etcd_server, tmp_path, "wait", mode) as job:
        job.client.put("/spaces/stocks", json=SCHEMA).raise_for_status()
        (present,) = job.client.get("/partitions").json()["maps"]
        root = {"bit": 3, "one": {"bit": 5}}
        plan = {**present, "map": {"plan": "legs", "root": root}, "assignment": {}}
        (tmp_path / "result").write_text(result({**plan, "reasons": ["it is better"]}))
        (tmp_path / "go").write_text("go")
        first = job.last("done")
        (space,) = first["spaces"]
        assert space["plan"]["reasons"] == ["it is better"]
        assert (space["applied"], space["refused"]) == (mode == "apply", "")
        plans = job.client.get("/partitions/plan").json()["items"]
        wanted = [["it is better"]] if mode == "apply" else []
        assert [each["reasons"] for each in plans] == wanted
        (tmp_path / "go").write_text("go")
        until_sync(lambda: job.last("done") != first)
        (space,) = job.last("done")["spaces"]
        # It is being carried out, or the map has another number by then.
        assert ("the plan" in space["refused"] or "plan for" in space["refused"]) == (
            mode == "apply"
        )


@pytest.mark.parametrize("mode", ["propose", "apply"])
def test_shapes_are_shown_and_only_adopted_if_that_is_wanted(
    etcd_server: TestEtcd, tmp_path: Path, mode: JobMode
) -> None:
    os.mkfifo(tmp_path / "go")
    with scheduled(etcd_server, tmp_path, "wait", mode, kind="shapes") as job:
        job.client.put("/spaces/stocks", json=SCHEMA).raise_for_status()
        present = job.client.get("/spaces/stocks/shapes").json()["shapes"]
        wanted = {"version": 0, "shapes": [[3], [7]]}
        figures = {"before": {"unwanted": 0.5}, "after": {"unwanted": 0.25}, "why": ""}
        found = [{"space": "stocks", "proposal": {**wanted, "space": "stocks"}, **figures}]
        # One that the service refuses: it has no such space.
        found.append({**found[0], "space": "gone", "proposal": {**wanted, "space": "gone"}})
        (tmp_path / "result").write_text(json.dumps({"spaces": found}))
        (tmp_path / "go").write_text("go")
        last = job.last("done")
        assert last["kind"] == job.shown()["kind"] == "shapes"
        stocks, gone = last["spaces"]
        assert (stocks["unwanted"], stocks["predicted_unwanted"]) == (0.5, 0.25)
        assert stocks["shapes"]["shapes"] == [[3], [7]]
        applies = mode == "apply"
        assert (stocks["applied"], stocks["refused"], gone["applied"]) == (applies, "", False)
        assert ("there is no space" in gone["refused"]) == applies
        now = job.client.get("/spaces/stocks/shapes").json()["shapes"]
        # The shape of everything is in each dictionary.
        assert now == ([[0], [3], [7]] if applies else present)
        words = job.calls()[0]["words"]
        assert words[:4] == ["trace", "shapes", "/the/traces", "--json"]


@pytest.mark.parametrize("kind", ["rebalance", "shapes"])
def test_the_real_command_understands_its_arguments(tmp_path: Path, kind: JobKind) -> None:
    """It reads all of them before it looks for the folder of the result; Spark is not started."""
    options = JobOptions(EVERY, str(tmp_path), tmp_path, kind)
    result = tmp_path / "nowhere" / "result.json"
    owners = tmp_path / "owners.json"
    owners.write_text('{"stocks/0": "configurator-0"}')
    words = command_words(options, ["configurator-0", "configurator-1"], 1.8e9, result, owners)
    done = subprocess.run([*DZFLOW, *words], capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert "there is no folder" in " ".join(done.stderr.split()), done.stderr


def test_without_a_schedule_nothing_runs(etcd_server: TestEtcd) -> None:
    with (
        Stack(etcd_server.access()) as stack,
        httpx.Client(base_url=stack.url, timeout=60) as client,
    ):
        assert client.get("/jobs").json() == {
            "every": 0.0,
            "kind": None,
            "mode": None,
            "state": None,
        }
