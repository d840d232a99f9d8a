"""Partition maps are changed over REST and by the command, under load."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from configurators.store.documents import encode
from configurators.store.etcd.client import Etcd
from configurators.store.keys import SPACES
from dispatcher.dispatcher import Dispatcher
from dispatcher.options import DispatcherOptions
from monitor.monitor import Monitor
from sdn.emulator.refused import ErrorCode
from sdn.openflow.protocol.constants import TABLE_FULL, ErrorType
from tests.api.http.routes.plans import PATIENT, SCHEMA, SPACE, Plane, load, running
from tests.command import run_dzflow
from tests.etcd import TestEtcd
from tests.rest import problem_of, subscription
from tests.stack import PATIENT_MOVES, STILL, TOKEN, StackOptions
from tests.support import until_sync

ONE = None
THREE = {"bit": 1}
FIVE = {"bit": 1, "one": {"bit": 2}}
_FULL = ErrorCode(ErrorType.FLOW_MOD_FAILED, TABLE_FULL)


@pytest.fixture(scope="module", params=["sna", "sea"])
def plane(etcd_server: TestEtcd, request: pytest.FixtureRequest) -> Iterator[Plane]:
    options = StackOptions(
        mode=request.param, configurators=2, southbound=2, partitions=3, patience=PATIENT
    )
    with running(etcd_server, options) as made:
        yield made


@pytest.fixture(scope="module")
def assigned(etcd_server: TestEtcd) -> Iterator[Plane]:
    with running(etcd_server, StackOptions(configurators=2, partitions=3)) as made:
        yield made


def test_maps_are_changed_under_load(plane: Plane) -> None:
    with load(plane.stack.url) as wrong:
        for root, leaves in (
            (THREE, {"1-0", "1-1", "1-x"}),
            (FIVE, {"1-0", "1-1.2-0", "1-1.2-1", "1-1.2-x", "1-x"}),
            (ONE, {"all"}),
            ({"bit": 0, "zero": {"bit": 2}}, {"0-0.2-0", "0-0.2-1", "0-0.2-x", "0-1", "0-x"}),
        ):
            number = plane.map()["number"]
            begun = plane.client.post("/partitions/plan", json=plane.body(root, reasons=["test"]))
            assert begun.status_code == 202, begun.text
            assert begun.json()["number"] == number
            plan = plane.ended()
            assert (plan["phase"], plan["text"], plan["reasons"]) == ("done", "", ["test"])
            assert {step["state"] for step in plan["steps"]} <= {"done"}
            assert plane.leaves().keys() == leaves
    assert wrong == []
    plane.check_tables()


def test_a_step_waits_for_a_switch_that_is_away_and_says_so(plane: Plane) -> None:
    with plane.switch_away("s2"):
        plane.client.post("/partitions/plan", json=plane.body(THREE)).raise_for_status()
        until_sync(lambda: "s2" in plane.plan()["waiting"])
        shown = plane.plan()
        assert [step["state"] for step in shown["steps"]] == ["settling"]
        assert set(shown["steps"][0]["added"]) == {"1-0", "1-1", "1-x"}
        until_sync(lambda: {i["state"] for i in plane.leaves().values()} == {"waiting"})
        assert {"being changed" in i["reason"] for i in plane.leaves().values()} == {True}
    assert plane.ended()["phase"] == "done"
    until_sync(lambda: {i["state"] for i in plane.leaves().values()} == {"ready"})
    plane.check_tables()


def test_a_plan_that_is_aborted_is_undone_as_far_as_it_has_not_settled(plane: Plane) -> None:
    before = plane.map()
    with plane.switch_away("s2"):
        plane.client.post("/partitions/plan", json=plane.body({"bit": 3})).raise_for_status()
        until_sync(lambda: plane.plan()["phase"] == "settling")
        aborted = plane.client.delete("/partitions/plan", params={"space": SPACE})
        assert aborted.status_code == 202, aborted.text
        assert aborted.json()["aborting"] is True
        plan = plane.ended()
        assert plan["phase"] == "aborted"
        assert "operator" in plan["text"]
        assert [step["state"] for step in plan["steps"]] == ["open"]
    assert plane.map()["map"] == before["map"]
    assert plane.map()["number"] > before["number"]
    until_sync(lambda: {i["state"] for i in plane.leaves().values()} == {"ready"})
    plane.check_tables()
    problem_of(plane.client.delete("/partitions/plan"), 404)
    with load(plane.stack.url) as wrong:
        plane.client.post("/subscribe", json=subscription(SPACE)).raise_for_status()
    assert wrong == []


def test_a_step_that_a_switch_has_no_room_for_is_undone(plane: Plane) -> None:
    plane.client.post("/partitions/plan", json=plane.body(ONE)).raise_for_status()
    assert plane.ended()["phase"] == "done"
    body = {"host": "h3", "space": SPACE, "filter": {}}  # covers everything, in this map
    made = plane.client.post("/subscribe", json=body).json()
    switch = plane.stack.network.switches["s3"]
    plane.on_loop(lambda: switch.refuse(times=None, error=_FULL))
    fine = {"host": "h3", "space": SPACE, "filter": {"price": {"gte": 700}}}
    covered = plane.client.post("/subscribe", json=fine)
    assert covered.status_code == 201  # needs no entry of its own
    plane.client.post("/partitions/plan", json=plane.body(FIVE)).raise_for_status()
    plan = plane.ended()
    assert plan["phase"] == "aborted"
    assert "s3" in plan["text"]
    assert plane.leaves().keys() == {"all"}
    plane.on_loop(switch.behave)
    until_sync(lambda: {i["state"] for i in plane.leaves().values()} == {"ready"})
    plane.check_tables()
    for id in (covered.json()["id"], made["id"]):
        plane.client.post("/unsubscribe", json={"id": id}).raise_for_status()
    plane.check_tables()


def test_another_leader_goes_on_with_a_plan(etcd_server: TestEtcd) -> None:
    options = StackOptions(configurators=2, partitions=3, patience=PATIENT)
    with running(etcd_server, options) as plane:
        stack = plane.stack

        async def second() -> tuple[Dispatcher, Monitor]:
            how = DispatcherOptions(patience=PATIENT)
            dispatcher = await Dispatcher(stack.access, TOKEN, how).__aenter__()
            monitor = Monitor(dispatcher, options=STILL, limits=PATIENT_MOVES)
            return dispatcher, await monitor.__aenter__()

        async def leave(*parts: Any) -> None:
            for part in parts:
                await part.__aexit__(None, None, None)

        dispatcher, monitor = stack.run(second())
        try:
            with load(stack.url) as wrong:
                with plane.switch_away("s2"):
                    plane.client.post("/partitions/plan", json=plane.body(FIVE)).raise_for_status()
                    until_sync(lambda: plane.plan()["phase"] == "settling")
                    stack.run(leave(stack.monitor))
                    stack.run(monitor.leadership.wait_gained())
                    assert plane.plan()["running"]
                assert plane.ended()["phase"] == "done"
            assert wrong == []
            plane.check_tables()
        finally:
            stack.run(leave(monitor, dispatcher))


def test_a_plan_assigns_partitions(assigned: Plane) -> None:
    wanted = {"3-0": "configurator-0", "3-1": "configurator-1", "3-x": "configurator-1"}
    body = assigned.body({"bit": 3}, assignment=wanted)
    assigned.client.post("/partitions/plan", json=body).raise_for_status()
    assert assigned.ended()["phase"] == "done"

    def owners() -> dict[str, Any]:
        return {leaf: item["configurator"] for leaf, item in assigned.leaves().items()}

    until_sync(lambda: owners() == wanted)


def test_an_element_of_the_maps_is_a_plan_that_changes_nothing(assigned: Plane) -> None:
    before = assigned.map()
    assigned.client.post("/partitions/plan", json=before).raise_for_status()
    plan = assigned.ended()
    assert (plan["phase"], plan["steps"]) == ("done", [])
    assert assigned.map() == before


def _bad(name: str, status: int, text: str, **more: object) -> Any:
    return pytest.param(status, text, more, id=name)


@pytest.mark.parametrize(
    ("status", "text", "more"),
    [
        _bad("unknown-space", 409, "the space 'nowhere'", space="nowhere"),
        _bad("space-name", 422, "regex", space="no/name"),
        _bad("stale-number", 409, "made for the map number 77", number=77),
        _bad("other-version", 409, "version 3 of the index", version=3),
        _bad("no-version", 422, "<= 3", version=4),
        _bad("other-plan", 422, "under legs", map={"plan": "lpm"}),
        _bad("no-plan", 422, "Invalid enum", map={"plan": "tcam"}),
        _bad("bit", 422, "<= 95", map={"plan": "legs", "root": {"bit": 96}}),
        _bad("unknown-member", 422, "unknown field", map={"plan": "legs", "root": {"bits": 1}}),
        _bad(
            "bit-twice",
            422,
            "tests bit 4 twice",
            map={"plan": "legs", "root": {"bit": 4, "one": {"bit": 4}}},
        ),
        _bad("unknown-leaf", 422, "no partition '9-0'", assignment={"9-0": "configurator-0"}),
        _bad("dead", 409, "no live configurator", assignment={"all": "configurator-9"}),
        _bad("reasons", 422, "array", reasons="because"),
    ],
)
def test_a_bad_plan_changes_nothing(
    assigned: Plane, status: int, text: str, more: dict[str, object]
) -> None:
    before, plans = assigned.map(), assigned.client.get("/partitions/plan").json()
    answer = assigned.client.post("/partitions/plan", json=assigned.body(ONE) | more)
    assert text in problem_of(answer, status)["detail"]
    assert assigned.map() == before
    assert assigned.client.get("/partitions/plan").json() == plans


def test_a_space_has_one_plan_at_a_time_and_no_change_of_schema_beside_it(plane: Plane) -> None:
    with plane.switch_away("s2"):
        plane.client.post("/partitions/plan", json=plane.body({"bit": 5})).raise_for_status()
        until_sync(lambda: plane.plan()["phase"] == "settling")
        again = plane.client.post("/partitions/plan", json=plane.body({"bit": 6}))
        assert "another plan" in problem_of(again, 409)["detail"]
        wider = {"attributes": [*SCHEMA["attributes"], {"name": "hot", "type": "bool"}]}
        changed = plane.client.put(f"/spaces/{SPACE}", json=wider)
        assert "partition map" in problem_of(changed, 409)["detail"]
        leaf = next(iter(plane.leaves().values()))
        moved = plane.client.post(
            f"/partitions/{leaf['id']}/migrate", json={"to": "configurator-0"}
        )
        problem_of(moved, 409)
        plane.client.delete("/partitions/plan").raise_for_status()
    assert plane.ended()["phase"] == "aborted"


def test_a_plan_is_refused_while_the_schema_is_being_changed(assigned: Plane) -> None:
    catalogue = assigned.stack.dispatcher.catalogue

    async def set_changing(by: str) -> None:
        space = catalogue.spaces.named(SPACE)
        async with Etcd(assigned.stack.access) as etcd:
            await etcd.put(SPACES + SPACE, encode(replace(space.doc, by=by)))
        await catalogue.refresh(space)

    body = assigned.body(ONE)
    assigned.stack.run(set_changing("somebody"))
    try:
        answer = assigned.client.post("/partitions/plan", json=body)
        assert "the index" in problem_of(answer, 409)["detail"]
    finally:
        assigned.stack.run(set_changing(""))


def test_only_in_mode_sna_a_plan_can_assign(plane: Plane) -> None:
    before = plane.map()
    answer = plane.client.post(
        "/partitions/plan", json=plane.body(ONE, assignment={"all": "configurator-0"})
    )
    if plane.stack.options.mode == "sea":
        assert "mode sea" in problem_of(answer, 409)["detail"]
        assert plane.map() == before
    else:
        assert answer.status_code == 202, answer.text
        assert plane.ended()["phase"] == "done"
        assert plane.leaves()["all"]["configurator"] == "configurator-0"


def test_an_idempotency_key_starts_one_plan(assigned: Plane) -> None:
    body = assigned.body(THREE)
    headers = {"Idempotency-Key": "one-plan"}
    first = assigned.client.post("/partitions/plan", json=body, headers=headers)
    again = assigned.client.post("/partitions/plan", json=body, headers=headers)
    assert first.status_code == again.status_code == 202
    assert first.json()["id"] == again.json()["id"]
    assert assigned.ended()["id"] == first.json()["id"]


def test_the_stream_shows_plans(assigned: Plane) -> None:
    phases: list[str] = []
    with assigned.client.stream("GET", "/stream", params={"types": "plan"}) as stream:
        lines = stream.iter_lines()
        body = assigned.body(ONE)
        begun = httpx.post(f"{assigned.stack.url}/partitions/plan", json=body, timeout=60)
        for line in lines:
            if line.startswith("data: ") and line != "data: null":
                plan = json.loads(line.removeprefix("data: "))
                if plan["id"] == begun.json()["id"]:
                    phases.append(plan["phase"])
                    if not plan["running"]:
                        break
    assert {"cutting", "settling", "done"} <= set(phases)


def test_plans_and_their_steps_are_counted(assigned: Plane) -> None:
    def counted(name: str) -> float:
        lines = assigned.client.get("/metrics").text.splitlines()
        (line,) = [line for line in lines if line.startswith(f'{name}{{outcome="done"}}')]
        return float(line.rpartition(" ")[2])

    plans, steps = counted("dzflow_map_plans_total"), counted("dzflow_map_steps_total")
    assigned.client.post("/partitions/plan", json=assigned.body({"bit": 7})).raise_for_status()
    assert assigned.ended()["phase"] == "done"
    # The end of a plan may be heard of before the answer that it was written, which is counted. So
    # the plan of the test before may be counted only now, too.
    until_sync(lambda: counted("dzflow_map_plans_total") >= plans + 1)
    until_sync(lambda: counted("dzflow_map_steps_total") >= steps + 1)


def command(plane: Plane, *given: str) -> subprocess.CompletedProcess[str]:
    return run_dzflow("partitions", "plan", *given, "--url", plane.stack.url)


def test_the_command_changes_a_map(assigned: Plane, tmp_path: Path) -> None:
    printed = command(assigned, "--template", SPACE)
    assert printed.returncode == 0, printed.stderr
    plan = json.loads(printed.stdout)
    plan["map"]["root"] = {"bit": 8}
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan))
    done = command(assigned, str(file), "--wait")
    assert done.returncode == 0, done.stderr
    assert "1 of 1 steps done" in done.stderr
    assert assigned.leaves().keys() == {"8-0", "8-1", "8-x"}
    shown = command(assigned, "--show")
    assert "8-0, 8-1, 8-x" in shown.stdout
    listed = json.loads(command(assigned, "--show", "--json").stdout)
    assert listed["items"][0]["phase"] == "done"
    stale = command(assigned, str(file))
    assert stale.returncode == 1
    assert "make a new plan" in stale.stderr


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ((), "give the file of a plan"),
        (("--show", "--abort"), "give the file of a plan"),
        (("--abort",), "no plan is being carried out"),
        (("--template", "nowhere"), "does not exist"),
        (("nowhere.json",), "cannot be read"),
    ],
)
def test_the_command_says_what_is_wrong(assigned: Plane, given: tuple[str, ...], text: str) -> None:
    done = command(assigned, *given)
    assert done.returncode == 1
    assert text in done.stderr
