"""`dzflow trace shapes`: dictionaries of shapes, learned from request traces."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from dzflow.cli.client import interruptible
from dzflow.cli.tables import plain
from dzflow.cli.trace import (
    Master,
    Setting,
    Since,
    Traces,
    Until,
    check_folders,
    open_traces,
    parse_time,
    print_table,
    show_source,
    spark_options,
    write_per_space,
    write_result,
)

if TYPE_CHECKING:
    from spark.session import SparkOptions
    from spark.shapes.model import Prediction, ShapesFound, SpaceShapes
    from spark.shapes.options import ShapesOptions


def shapes(
    path: Traces,
    space: Annotated[str, typer.Option(help="Only this space.")] = "",
    json: Annotated[
        Path | None, typer.Option(help="Write dictionaries and predictions to it.")
    ] = None,
    shapes: Annotated[
        Path | None, typer.Option(help="Write the proposed dictionary to it, as JSON.")
    ] = None,
    since: Since = "",
    until: Until = "",
    master: Master = "local[*]",
    setting: Setting = None,
) -> None:
    """Learn the shapes of each space from its filters and events, or say why none are better."""
    from spark.shapes.options import ShapesOptions

    how = spark_options(master, setting or [])
    options = ShapesOptions(space, parse_time(since, "--since"), parse_time(until, "--until"))
    check_folders(json, shapes)
    console = Console()
    with interruptible():
        found = _run(how, path, options)
        show(console, found)
        if json:
            import msgspec

            write_result(console, json, msgspec.json.encode(found))
        if shapes:
            proposals = [each.proposal for each in found.spaces if each.proposal]
            write_per_space(console, shapes, "proposal", proposals)


def _run(how: "SparkOptions", path: str, options: "ShapesOptions") -> "ShapesFound":
    """Run the job."""
    times = options.since_us, options.until_us
    with open_traces(how, "shapes", path, *times) as (session, traces):
        from spark.shapes.job import make_shapes

        return make_shapes(session, path, traces, options)


def show(console: Console, found: "ShapesFound") -> None:
    """Print what the job has found."""
    if not show_source(console, found.source):
        return
    if not found.spaces:
        console.print("There are no subscriptions to learn from.")
    for each in found.spaces:
        _show_space(console, each)


def _show_space(console: Console, each: "SpaceShapes") -> None:
    """The figures of one space before and after, and what a change takes."""
    which = "active subscriptions" if each.active else "subscriptions, none of them active,"
    text = f"{each.space}: {each.subscriptions:,} {which} with {each.filters:,} filters"
    console.print(f"\n[bold]{plain(text)}[/]", highlight=False)
    if each.sampled and each.sampled < each.filters:
        console.print(f"figures are of a sample of {each.sampled:,} filters", highlight=False)
    if each.damaged:
        text = f"{each.damaged:,} of {each.sampled:,} filters cannot be read, or do not fit"
        console.print(f"[yellow]{text}[/]", highlight=False)
    if each.damaged_events:
        count = f"{each.damaged_events:,} of {each.events + each.damaged_events:,}"
        console.print(f"[yellow]{count} sampled events do not fit[/]", highlight=False)
    if each.before and each.after:
        basis = f"with {each.events:,} sampled events"
        if each.basis == "uniform":
            basis = "as if all events were equally likely"
            if each.events:
                basis += f": none of {each.events:,} sampled events reaches a filter"
        console.print(f"predicted {basis}", highlight=False)
        rows = [(name, write(each.before), write(each.after)) for name, write in _FIGURES.items()]
        print_table(console, "Predicted", ("", "present shapes", "learned shapes"), rows)
    if each.proposal:
        for reason in each.proposal.reasons:
            console.print(plain(f"- {reason}"), highlight=False)
    else:
        console.print(plain(f"no proposal: {each.why}"), highlight=False)


_FIGURES: "dict[str, Callable[[Prediction], str]]" = {
    "unwanted events": lambda p: f"{p.unwanted:.1%}",
    "entries of a filter": lambda p: f"{p.entries:.2f}",
    "masks in use": lambda p: f"{p.masks:,}",
    "shapes": lambda p: f"{p.shapes:,}",
}


def add_to(parent: typer.Typer) -> None:
    """Add the command to `dzflow trace`."""
    parent.command()(shapes)
