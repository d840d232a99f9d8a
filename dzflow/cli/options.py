"""The options that `dzflow up` and `dzflow demo` share, and the settings made from them."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.markup import escape

if TYPE_CHECKING:
    from api.start.settings.settings import Settings


@dataclass(frozen=True)
class StartOptions:
    """How `dzflow up` and `dzflow demo` start the service. None leaves a setting as it is."""

    config: Annotated[Path | None, typer.Option(help="A TOML or YAML file with settings.")] = None
    data_plane: Annotated[
        Literal["emulated", "ovs", "external", "onos"] | None,
        typer.Option(
            help="Emulated switches (default), an Open vSwitch lab, your own switches, or ONOS."
        ),
    ] = None
    topology: Annotated[
        str | None, typer.Option(help="Such as line:3, ring:4, tree:2,3 or fat-tree:10, or a file.")
    ] = None
    configurators: Annotated[int | None, typer.Option(help="Number of configurators.")] = None
    southbound: Annotated[int | None, typer.Option(help="Number of southbound processes.")] = None
    dispatchers: Annotated[
        int | None, typer.Option(help="Number of processes that serve the API.")
    ] = None
    mode: Annotated[
        Literal["sna", "sea"] | None,
        typer.Option(help="Shared nothing (sna) or shared everything (sea)."),
    ] = None
    plan: Annotated[
        Literal["legs", "lpm"] | None,
        typer.Option(
            help="How filters become table entries: one table per leg, or one table of prefixes."
        ),
    ] = None
    trees: Annotated[int | None, typer.Option(help="Number of trees that share the events.")] = None
    ordering: Annotated[
        Literal["fifo", "ordered", "net"] | None,
        typer.Option(
            help="How a slice is decided: in order of arrival, coarse first, or as a net change."
        ),
    ] = None
    partitions: Annotated[int | None, typer.Option(help="Number of partitions of a new space.")] = (
        None
    )
    port: Annotated[int | None, typer.Option(help="Port of the API; 0 selects a free one.")] = None
    listen: Annotated[str | None, typer.Option(help="Address of the API.")] = None
    data_dir: Annotated[Path | None, typer.Option(help="Folder for all data.")] = None
    switch_delay_ms: Annotated[
        float | None, typer.Option(help="Milliseconds before an emulated switch acknowledges.")
    ] = None
    switch_model: Annotated[
        Literal["software", "hardware"] | None, typer.Option(help="Model of the emulated switches.")
    ] = None
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Accept API calls without a token from any address.")
    ] = False


def settings_of(options: StartOptions) -> "Settings":
    """The settings from file, environment and the given options."""
    from api.start.settings.sources import find_exposed_secrets, load

    given = {name: value for name, value in vars(options).items() if value is not None}
    config: Path | None = given.pop("config", None)
    emulated = {
        name: given.pop(option)
        for option, name in (("switch_delay_ms", "switch_delay_ms"), ("switch_model", "model"))
        if option in given
    }
    if emulated:
        given["emulated"] = emulated
    if given.pop("insecure", False):
        given["allow_anonymous"] = True
    settings = load(config, given)
    if config is not None and (text := find_exposed_secrets(config, settings)):
        Console(stderr=True).print(f"[yellow]note:[/] {escape(text)}", highlight=False)
    return settings
