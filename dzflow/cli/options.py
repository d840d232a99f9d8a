"""The options of `dzflow up`, which `dzflow demo` has, too, and the settings that they make."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from api.start.settings import Settings

Config = Annotated[Path | None, typer.Option(help="Settings from a TOML or YAML file.")]
DataPlane = Annotated[
    Literal["emulated", "ovs", "external", "onos"] | None,
    typer.Option(help="Emulated switches (the default), a lab of Open vSwitch, your own, or ONOS."),
]
TopologyName = Annotated[
    str | None, typer.Option(help="As in line:3, ring:4, tree:2,3, fat-tree:10, or a file.")
]
Configurators = Annotated[int | None, typer.Option(help="How many workers decide.")]
Southbound = Annotated[int | None, typer.Option(help="How many workers hold the switches.")]
Dispatchers = Annotated[int | None, typer.Option(help="How many processes serve the API.")]
Mode = Annotated[
    Literal["sna", "sea"] | None, typer.Option(help="Shared nothing, or shared everything.")
]
PlanName = Annotated[
    Literal["legs", "lpm"] | None, typer.Option(help="How filters become table entries.")
]
Trees = Annotated[int | None, typer.Option(help="How many trees events are spread over.")]
Ordering = Annotated[
    Literal["fifo", "ordered", "net"] | None, typer.Option(help="How a slice is decided.")
]
Partitions = Annotated[int | None, typer.Option(help="Partitions of a new space.")]
Port = Annotated[int | None, typer.Option(help="Where the API listens; 0: at a free port.")]
Listen = Annotated[str | None, typer.Option(help="The address at which the API listens.")]
DataDir = Annotated[Path | None, typer.Option(help="Folder for all that is kept.")]
SwitchDelay = Annotated[
    float | None, typer.Option(help="Milliseconds until emulated switches acknowledge.")
]
SwitchModel = Annotated[
    Literal["software", "hardware"] | None, typer.Option(help="What emulated switches are like.")
]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Let everybody in who can reach the API.")
]


def settings_of(config: Path | None, options: dict[str, Any]) -> "Settings":
    """The settings with the options that were given."""
    from api.start.settings_sources import load

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
    return load(config, given)
