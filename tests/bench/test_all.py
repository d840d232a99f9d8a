"""`dzflow bench all` runs one benchmark after another, whether or not each can run."""

import importlib
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from dzflow.cli import bench
from dzflow.errors import DzflowError
from sdn.lab.errors import LabUnavailable


def test_a_benchmark_that_cannot_run_is_skipped_and_one_that_fails_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes: dict[str, Any] = {
        "bench.first": LabUnavailable("no root"),
        "bench.second": None,
    }
    shown: list[str] = []

    def load(name: str) -> Any:
        def run(_quick: bool, _progress: Any) -> Any:
            if outcomes[name]:
                raise outcomes[name]
            return SimpleNamespace(show=lambda _: shown.append(name))

        return SimpleNamespace(run=run)

    monkeypatch.setattr(bench, "NAMES", ("first", "second"))
    monkeypatch.setattr(importlib, "import_module", load)
    bench.bench("all")
    assert shown == ["bench.second"]
    assert "first cannot run here: no root" in capsys.readouterr().out
    outcomes["bench.first"] = DzflowError("broken")
    with pytest.raises(typer.Exit):
        bench.bench("all")
    assert shown == ["bench.second"] * 2
