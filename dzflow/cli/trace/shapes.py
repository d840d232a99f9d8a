"""`dzflow trace shapes`: dictionaries of shapes, learned from request traces."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer
from rich.console import Console

from dzflow.cli.option_groups import BadOption, with_option_groups
from dzflow.cli.service.client import ServiceOptions, interruptible
from dzflow.cli.service.rest import checked, open_client
from dzflow.cli.tables import plain
from dzflow.cli.trace.options import (
    Period,
    Space,
    SparkChoice,
    Traces,
    check_folders,
)
from dzflow.cli.trace.results import print_table, show_source, write_json, write_per_space
from dzflow.cli.trace.session import open_traces

if TYPE_CHECKING:
    import httpx

    from spark.session import SparkOptions
    from spark.shapes.model import Prediction, Proposal, ShapesFound, SpaceShapes
    from spark.shapes.options import ShapesOptions

_LOOK_EVERY = 0.5  # seconds


@with_option_groups
def shapes(
    *,
    path: Traces,
    apply: Annotated[
        bool, typer.Option("--apply", help="Have the service go over to the learned shapes.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="With --apply: wait until all records have new regions.")
    ] = False,
    space: Space = "",
    json: Annotated[
        Path | None, typer.Option(help="Write dictionaries and predictions to it.")
    ] = None,
    shapes: Annotated[
        Path | None, typer.Option(help="Write the proposed dictionary to it, as JSON.")
    ] = None,
    period: Period,
    spark: SparkChoice,
    service: ServiceOptions,
) -> None:
    """Learn the shapes of each space from its filters and events, or say why none are better."""
    from spark.shapes.options import ShapesOptions

    how = spark.options()
    options = ShapesOptions(space, *period.times())
    check_folders(json, shapes)
    if wait and not apply:
        raise BadOption("--wait goes with --apply")
    console = Console()
    with interruptible():
        found = _run(how, path, options)
        show(console, found)
        if json:
            write_json(console, json, found)
        proposals = [each.proposal for each in found.spaces if each.proposal]
        if shapes:
            write_per_space(console, shapes, "proposal", proposals)
        if apply and proposals:
            with open_client(service) as client:
                adopt(client, proposals, wait)


def _run(how: "SparkOptions", path: str, options: "ShapesOptions") -> "ShapesFound":
    """Run the job."""
    times = options.since_us, options.until_us
    with open_traces(how, "shapes", path, *times) as (session, traces):
        from spark.shapes.job import make_shapes

        return make_shapes(session, path, traces, options)


def adopt(client: "httpx.Client", proposals: "Iterable[Proposal]", wait: bool) -> None:
    """Have a service go over to dictionaries, one after another."""
    console = Console(stderr=True)
    for each in proposals:
        path = f"/spaces/{quote(each.space, safe='')}/shapes"
        body = {"version": each.version, "shapes": each.shapes}
        now = checked(client.put(path, json=body)).json()
        text = f"{each.space} has the learned shapes; its records are indexed again"
        console.print(plain(text), highlight=False)
        while wait and now["changing"]:
            time.sleep(_LOOK_EVERY)
            now = checked(client.get(path)).json()
        if wait:
            console.print(plain(f"{each.space}: done"), highlight=False)


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
