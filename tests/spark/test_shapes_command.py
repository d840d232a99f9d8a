"""What `dzflow trace shapes` prints and writes; without Spark."""

import json
import re
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import httpx
import pytest
import typer
from msgspec.structs import replace
from rich.console import Console
from typer.testing import CliRunner

from dzflow.cli.trace import shapes
from dzflow.cli.trace.results import write_per_space
from spark.shapes.model import Change, Prediction, Proposal, ShapesFound, SpaceShapes
from spark.traces import Source

SOURCE = Source("traces", 0, 0, 1_000_000, 1, 10, 8)
PROPOSAL = Proposal("stocks", 0, ((0, 0), (0, 2)), ("unwanted events fall",))
RESULT = SpaceShapes(
    space="stocks",
    subscriptions=1_200,
    active=True,
    filters=800,
    sampled=500,
    damaged=2,
    events=40,
    damaged_events=1,
    basis="events",
    before=Prediction(64, 12, 3.5, 0.4),
    after=Prediction(60, 9, 3.25, 0.125),
    change=Change(0.3, 700, 900, 950),
    proposal=PROPOSAL,
    why="",
)


def shown(*spaces: SpaceShapes, source: Source = SOURCE) -> str:
    console = Console(file=StringIO(), width=120)
    shapes.show(console, ShapesFound(source, spaces))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_a_proposal_is_shown_with_figures_and_reasons() -> None:
    text = shown(RESULT)
    assert "stocks: 1,200 active subscriptions with 800 filters" in text
    assert "figures are of a sample of 500 filters" in text
    assert "2 of 500 filters cannot be read, or do not fit" in text
    assert "1 of 41 sampled events do not fit" in text
    assert "predicted with 40 sampled events" in text
    row = next(line for line in text.splitlines() if "unwanted events " in line)
    assert ("40.0%" in row, "12.5%" in row) == (True, True)
    assert "- unwanted events fall" in text


def test_without_a_proposal_the_reason_is_shown() -> None:
    text = shown(replace(RESULT, proposal=None, why="it does not pay", basis="uniform"))
    assert "no proposal: it does not pay" in text
    assert "none of 40 sampled events reaches a filter" in text
    alone = replace(RESULT, before=None, after=None, proposal=None, why="no shapes", active=False)
    assert "none of them active" in shown(alone)
    assert "There are no requests" in shown(source=Source("traces", 0, 0, 0, 0, 0, 0))
    assert "There are no subscriptions" in shown()


def test_dictionaries_are_written_to_a_file_each(tmp_path: Path) -> None:
    console = Console(file=StringIO())
    write_per_space(console, tmp_path / "shapes.json", "proposal", [PROPOSAL])
    written = json.loads((tmp_path / "shapes.json").read_text())
    assert written == {
        "space": "stocks",
        "version": 0,
        "shapes": [[0, 0], [0, 2]],
        "reasons": ["unwanted events fall"],
    }
    both = [PROPOSAL, replace(PROPOSAL, space="bonds")]
    write_per_space(console, tmp_path / "all.json", "proposal", both)
    write_per_space(console, tmp_path / "none.json", "proposal", [])
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == ["all-bonds.json", "all-stocks.json", "shapes.json"]


def service(answers: Iterator[bool], asked: list[tuple[str, object]]) -> httpx.Client:
    """A service that says each time whether it is still changing its shapes."""

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(
            (f"{request.method} {request.url.path}", json.loads(request.content or "null"))
        )
        return httpx.Response(200, json={"changing": next(answers)})

    return httpx.Client(base_url="http://service", transport=httpx.MockTransport(answer))


def test_a_service_is_asked_to_adopt_a_dictionary_and_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shapes, "_LOOK_EVERY", 0.0)
    asked: list[tuple[str, object]] = []
    with service(iter([True, True, False]), asked) as client:
        shapes.adopt(client, [PROPOSAL], wait=True)
    path = "/spaces/stocks/shapes"
    body = {"version": 0, "shapes": [[0, 0], [0, 2]]}
    assert asked == [(f"PUT {path}", body), (f"GET {path}", None), (f"GET {path}", None)]
    assert "stocks: done" in capsys.readouterr().err
    asked.clear()
    with service(iter([True]), asked) as client:
        shapes.adopt(client, [PROPOSAL], wait=False)
    assert [call for call, _ in asked] == [f"PUT {path}"]


def test_waiting_without_applying_is_refused() -> None:
    app = typer.Typer()
    app.command()(shapes.shapes)
    done = CliRunner().invoke(app, ["traces", "--wait"])
    assert done.exit_code == 1
    assert re.search("--wait goes with --apply", str(done.exception))
