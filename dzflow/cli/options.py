"""The options that `dzflow up` and `dzflow demo` share, and the settings made from them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape

if TYPE_CHECKING:
    from api.start.settings.settings import Settings

Config = Annotated[Path | None, typer.Option(help="A TOML or YAML file with settings.")]
DataPlane = Annotated[
    Literal["emulated", "ovs", "external", "onos"] | None,
    typer.Option(
        help="Emulated switches (default), an Open vSwitch lab, your own switches, or ONOS."
    ),
]
TopologyName = Annotated[
    str | None, typer.Option(help="Such as line:3, ring:4, tree:2,3 or fat-tree:10, or a file.")
]
Configurators = Annotated[int | None, typer.Option(help="Number of configurators.")]
Southbound = Annotated[int | None, typer.Option(help="Number of southbound processes.")]
Dispatchers = Annotated[int | None, typer.Option(help="Number of processes that serve the API.")]
Mode = Annotated[
    Literal["sna", "sea"] | None,
    typer.Option(help="Shared nothing (sna) or shared everything (sea)."),
]
PlanName = Annotated[
    Literal["legs", "lpm"] | None,
    typer.Option(
        help="How filters become table entries: one table per leg, or one table of prefixes."
    ),
]
Trees = Annotated[int | None, typer.Option(help="Number of trees that share the events.")]
Ordering = Annotated[
    Literal["fifo", "ordered", "net"] | None,
    typer.Option(
        help="How a slice is decided: in order of arrival, coarse first, or as a net change."
    ),
]
Partitions = Annotated[int | None, typer.Option(help="Number of partitions of a new space.")]
Port = Annotated[int | None, typer.Option(help="Port of the API; 0 selects a free one.")]
Listen = Annotated[str | None, typer.Option(help="Address of the API.")]
DataDir = Annotated[Path | None, typer.Option(help="Folder for all data.")]
SwitchDelay = Annotated[
    float | None, typer.Option(help="Milliseconds before an emulated switch acknowledges.")
]
SwitchModel = Annotated[
    Literal["software", "hardware"] | None, typer.Option(help="Model of the emulated switches.")
]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Accept API calls without a token from any address.")
]


def settings_of(config: Path | None, options: dict[str, Any]) -> "Settings":
    """The settings from file, environment and the given options."""
    from api.start.settings.sources import find_exposed_secrets, load

    given = {name: value for name, value in options.items() if value is not None}
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
