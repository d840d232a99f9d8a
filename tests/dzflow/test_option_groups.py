"""Options that several commands share are stated once, and are the same in all of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from dzflow.cli import app as dzflow
from dzflow.cli.option_groups import with_option_groups
from dzflow.cli.service.client import URL, ServiceOptions


@dataclass(frozen=True)
class Size:
    width: Annotated[int, typer.Option(help="In columns.")] = 80
    wrap: Annotated[bool, typer.Option("--wrap")] = False


def test_a_command_gets_each_group_as_one_value() -> None:
    called: list[object] = []
    app = typer.Typer()

    @app.command()
    @with_option_groups
    def show(
        *, text: Annotated[str, typer.Argument()], size: Size, service: ServiceOptions
    ) -> None:
        """Show a text."""
        called.append((text, size, service))

    for words, environment, expected in (
        (["hello"], {}, (Size(), ServiceOptions())),
        (
            ["hello", "--width", "7", "--wrap", "--url", "http://a", "--ca", "ca.pem"],
            {},
            (Size(7, True), ServiceOptions("http://a", None, Path("ca.pem"))),
        ),
        (
            ["hello", "--url", "http://b"],
            {"DZFLOW_URL": "http://c", "DZFLOW_TOKEN": "t"},
            (Size(), ServiceOptions("http://b", "t")),
        ),
    ):
        done = CliRunner().invoke(app, words, env=environment)
        assert done.exit_code == 0, done.output
        assert called.pop() == ("hello", *expected)
    help = CliRunner().invoke(app, ["--help"]).output
    assert "Show a text." in help
    assert "--width" in help


def test_a_token_is_not_shown_by_accident() -> None:
    assert "geheim" not in repr(ServiceOptions(URL, "geheim"))


def commands(command: Any, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """All commands of the `dzflow` command by name, with their options."""
    yield name, {option.name: option for option in command.params}
    for word, each in getattr(command, "commands", {}).items():
        yield from commands(each, f"{name} {word}")


SERVICE = [
    (name, options)
    for name, options in commands(typer.main.get_command(dzflow), "dzflow")
    if "url" in options
]


@pytest.mark.parametrize(("name", "options"), SERVICE, ids=[name for name, _ in SERVICE])
def test_all_commands_say_in_the_same_way_which_service_they_call(
    name: str, options: dict[str, Any]
) -> None:
    assert options["url"].default == URL, name
    assert {each: options[each].envvar for each in ("url", "token", "ca")} == {
        "url": "DZFLOW_URL",
        "token": "DZFLOW_TOKEN",
        "ca": "DZFLOW_CA",
    }
