"""What `dzflow trace rebalance` prints, writes and asks a service; without Spark."""

import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from api.http.schema.plans import PlanIn
from configurators.engine.partition_map import Node, PartitionMap
from configurators.state.trace_spaces import TraceVersion
from dzflow.cli.option_groups import BadOption
from dzflow.cli.trace import rebalance
from dzflow.cli.trace.results import write_per_space
from dzflow.index import build_index
from dzflow.region import Region
from dzflow.sdk.errors import Conflict
from dzflow.space import Space
from spark.rebalance.assignment import Fleet
from spark.rebalance.model import Rebalance, SpaceResult
from spark.rebalance.options import RebalanceOptions
from spark.rebalance.planner import propose
from spark.rebalance.prediction import RegionLoad, Timing
from spark.rebalance.results import SpaceLoad, space_result
from spark.shapes.model import Proposal
from spark.traces import Source

SCHEMA = {"attributes": [{"name": "price", "type": "int", "min": 0, "max": 1023, "bits": 10}]}
MAP = PartitionMap("legs", Node(0, zero=Node(1)))
SOURCE = Source("traces", 0, 0, 1_000_000, 1, 10, 8)
TIMING = Timing(1.0, 0.1, 0.4, 2.0)


def result(hot: float = 300.0, name: str = "stocks") -> SpaceResult:
    """A space whose upper half has most of the work, or not."""
    texts = ("11100", "11101", "11110", "11111")
    items = [RegionLoad(Region.parse(text), hot, False, 1.0) for text in texts]
    items.append(RegionLoad(Region.parse("00010"), 100.0, False, 1.0))
    owners = {leaf: "c2" if leaf == "0-1" else "c1" for leaf in MAP.leaves()}
    fleet = Fleet({"c1": 1.0, "c2": 1.0}, owners=owners)
    stored = TraceVersion(SCHEMA, ((5,),), MAP, 4)
    work = sum(item.weight for item in items)
    space = SpaceLoad(name, 0, stored, work, 1.0, 9_000.0, 20, 5, 5, 5, 0, 0.0)
    index = build_index(Space.from_json(name, SCHEMA))
    return space_result(space, index, propose(MAP, items, fleet), fleet, TIMING)


def shown(*spaces: SpaceResult, source: Source = SOURCE) -> str:
    console = Console(file=StringIO(), width=120)
    rebalance.show(console, Rebalance(source, "sna", {"c1": 1.0, "c2": 1.0}, spaces))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_a_plan_is_shown_with_figures_and_reasons() -> None:
    text = shown(result())
    assert "stocks: 1.3 ms of work (100% of all) on 5 regions of 5 filters" in text
    assert "9 ms waiting for switches" in text
    row = next(line for line in text.splitlines() if "busiest configurator over" in line)
    assert ("1.85" in row, "1.08" in row) == (True, True)
    assert "- 92% of the work was where price >= 896" in text
    assert "- 0-1 had 92% of the work: cut into" in text


def test_without_a_plan_the_reason_is_shown() -> None:
    text = shown(result(hot=25.0))
    assert "no plan: the busiest configurator has 1.00 times the mean load" in text
    assert "with the plan" not in text
    said = " ".join(shown(source=Source("traces", 0, 0, 0, 0, 0, 0)).split())
    assert "There are no requests" in said
    assert "completes a file every five minutes, and when it stops" in said
    assert "no work that could be planned" in shown()


def test_a_plan_is_written_as_the_service_takes_it(tmp_path: Path) -> None:
    plan = result().plan
    assert plan is not None
    write_per_space(Console(file=StringIO()), tmp_path / "plan.json", "plan", [plan])
    written = (tmp_path / "plan.json").read_bytes()
    taken = msgspec.json.decode(written, type=PlanIn)
    assert (taken.space, taken.version, taken.number) == ("stocks", 0, 4)
    assert taken.assignment == plan.assignment
    assert taken.assignment.keys() <= set(plan.map.leaves())
    assert taken.reasons == list(plan.reasons)


def test_plans_for_several_spaces_are_several_files(tmp_path: Path) -> None:
    plans = [result(name=name).plan for name in ("bonds", "stocks")]
    console = Console(file=StringIO())
    found = [plan for plan in plans if plan]
    write_per_space(console, tmp_path / "plan.json", "plan", found)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "plan-bonds.json",
        "plan-stocks.json",
    ]
    write_per_space(console, tmp_path / "none.json", "plan", [])
    assert not (tmp_path / "none.json").exists()


def test_speeds_are_numbers_above_zero() -> None:
    assert rebalance.parse_speeds(["c1", "c2=2.5"]) == {"c1": 1.0, "c2": 2.5}
    for wrong in ("=2", "c1=0", "c1=fast", "c1=-1", "c1=inf", "c1=nan", ""):
        with pytest.raises(BadOption, match="NAME=SPEED"):
            rebalance.parse_speeds([wrong])


def client(answer: Callable[[httpx.Request], httpx.Response]) -> httpx.Client:
    return httpx.Client(base_url="http://service", transport=httpx.MockTransport(answer))


def test_a_service_says_who_is_there_and_who_owns_what() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/partitions":
            owners = {"1.0/0-0": "c1", "2.0/all": "c4"}
            items: list[Any] = [{"id": id, "configurator": c} for id, c in owners.items()]
        else:
            items = [
                {"id": "c1", "state": "up", "leaving": False},
                {"id": "c2", "state": "up", "leaving": True},
                {"id": "c3", "state": "down", "leaving": False},
                {"id": "c4", "state": "up", "leaving": False},
            ]
        return httpx.Response(200, json={"items": items})

    with client(answer) as service:
        found = rebalance.with_service(RebalanceOptions(), service)
        assert found.speeds == {"c1": 1.0, "c4": 1.0}
        assert found.owners is not None
        assert found.owners["1.0/0-0"] == "c1"
        given = rebalance.with_service(RebalanceOptions(speeds={"c9": 2.0}), service)
        assert given.speeds == {"c9": 2.0}
        given = rebalance.with_service(RebalanceOptions(owners={"1.0/all": "c1"}), service)
        assert given.owners == {"1.0/all": "c1"}


def test_owners_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "owners.json"
    file.write_text('{"1.0/0-0": "c1", "2.0/all": "c4"}')
    assert rebalance.read_owners(file) == {"1.0/0-0": "c1", "2.0/all": "c4"}
    file.write_text("{}")
    assert rebalance.read_owners(file) == {}


@pytest.mark.parametrize("wrong", [b"", b"{", b'["c1"]', b'{"1.0/all": 1}', b'{"1.0/all": "\xff"}'])
def test_a_file_that_does_not_say_owners_is_refused(tmp_path: Path, wrong: bytes) -> None:
    file = tmp_path / "owners.json"
    file.write_bytes(wrong)
    with pytest.raises(BadOption, match=r"takes a JSON object of configurators by partition"):
        rebalance.read_owners(file)
    with pytest.raises(BadOption, match="nowhere cannot be read: No such file"):
        rebalance.read_owners(tmp_path / "nowhere")


def test_shapes_are_read_as_the_other_command_writes_them(tmp_path: Path) -> None:
    file = tmp_path / "shapes.json"
    written = Proposal("stocks", 3, ((2,), (5,)), ("fewer unwanted events",))
    write_per_space(Console(file=StringIO()), file, "proposal", [written])
    assert rebalance.read_shapes(file) == written
    file.write_text('{"space": "stocks"}')
    with pytest.raises(BadOption, match="takes a file of `dzflow trace shapes --shapes`"):
        rebalance.read_shapes(file)
    with pytest.raises(BadOption, match="cannot be read"):
        rebalance.read_shapes(tmp_path / "none.json")


def test_owners_in_a_file_are_those_of_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[RebalanceOptions] = []

    def run(_how: object, _path: str, options: RebalanceOptions) -> Rebalance:
        asked.append(options)
        return Rebalance(SOURCE)

    monkeypatch.setattr(rebalance, "_run", run)
    file = tmp_path / "owners.json"
    file.write_text('{"1.0/all": "c1"}')
    app = typer.Typer()
    app.command()(rebalance.rebalance)
    done = CliRunner().invoke(app, ["traces", "--owners", str(file)])
    assert done.exit_code == 0, done.output
    assert [options.owners for options in asked] == [{"1.0/all": "c1"}]


def test_a_map_that_has_changed_is_refused_with_what_to_do() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert json.loads(request.content)["number"] == 4
        detail = "the plan was made for the map number 4, and 'stocks' has number 5 by now"
        body = {"title": "Conflict", "status": 409, "detail": f"{detail}; make a new plan"}
        return httpx.Response(409, json=body)

    plan = result().plan
    assert plan is not None
    with client(answer) as service, pytest.raises(Conflict, match="make a new plan"):
        rebalance.carry_out(service, [plan], wait=False)
