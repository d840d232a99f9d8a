"""`dzflow trace rebalance`: plans for partition maps and owners, from request traces."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.console import Console

from dzflow.cli.option_groups import BadOption, with_option_groups
from dzflow.cli.service.client import ServiceOptions, interruptible
from dzflow.cli.service.plans import follow_plan, start_plan
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

    from spark.rebalance.model import Prediction, Rebalance, SpacePlan, SpaceResult
    from spark.rebalance.options import RebalanceOptions
    from spark.session import SparkOptions
    from spark.shapes.model import Proposal

T = TypeVar("T")

_MOST_PARTITIONS = 4096  # that the service accepts


@with_option_groups
def rebalance(
    *,
    context: typer.Context,
    path: Traces,
    apply: Annotated[
        bool, typer.Option("--apply", help="Have the service carry the plans out.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="With --apply: wait until the plans have ended.")
    ] = False,
    space: Space = "",
    partitions: Annotated[
        int | None,
        typer.Option(
            min=1, max=_MOST_PARTITIONS, help="Partitions of each space; by default as many as now."
        ),
    ] = None,
    configurator: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=SPEED]",
            help="A configurator to plan for, and its speed; 1 by default (repeatable). Without"
            " any, those of the service with --apply or --url, else those in the traces.",
        ),
    ] = None,
    owners: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The configurator of each partition by id, as a JSON object; by default what the"
            " service says with --apply or --url, else the traces.",
        ),
    ] = None,
    shapes: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Plan for the shapes in a file of `dzflow trace shapes --shapes`, instead of those"
            " in force (repeatable).",
        ),
    ] = None,
    min_gain: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="What a plan must gain, in units of a configurator's mean load; 0.1 by default.",
        ),
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write plans and predictions to it.")] = None,
    plan: Annotated[
        Path | None, typer.Option(help="Write the plan to it, as `dzflow partitions plan` reads.")
    ] = None,
    period: Period,
    spark: SparkChoice,
    service: ServiceOptions,
) -> None:
    """Propose partition maps and owners that spread the traced work, or say why none is better."""
    from spark.rebalance.options import RebalanceOptions
    from spark.rebalance.planner import MIN_GAIN

    how = spark.options()
    since, until = period.times()
    options = RebalanceOptions(
        space=space,
        partitions=partitions,
        min_gain=MIN_GAIN if min_gain is None else min_gain,
        speeds=parse_speeds(configurator or []),
        owners=read_owners(owners) if owners else None,
        shapes=tuple(map(read_shapes, shapes or [])),
        since_us=since,
        until_us=until,
    )
    check_folders(json, plan)
    if wait and not apply:
        raise BadOption("--wait goes with --apply")
    source = context.get_parameter_source("url")
    asks = apply or (source is not None and source.name == "COMMANDLINE")
    console = Console()
    with interruptible():
        if asks:
            with open_client(service) as client:
                options = with_service(options, client)
        found = _run(how, path, options)
        show(console, found)
        if json:
            write_json(console, json, found)
        plans = [each.plan for each in found.spaces if each.plan]
        if plan:
            write_per_space(console, plan, "plan", plans)
        if apply and plans:
            with open_client(service) as client:
                carry_out(client, plans, wait)


def _run(how: "SparkOptions", path: str, options: "RebalanceOptions") -> "Rebalance":
    """Run the job."""
    times = options.since_us, options.until_us
    with open_traces(how, "rebalance", path, *times) as (session, traces):
        from spark.rebalance.job import make_rebalance

        return make_rebalance(session, path, traces, options)


def parse_speeds(given: list[str]) -> dict[str, float]:
    """The speeds of configurators by name; BadOption if one is no positive number."""
    speeds = {}
    for text in given:
        name, equals, value = text.partition("=")
        try:
            speed = float(value) if equals else 1.0
        except ValueError:
            speed = 0.0
        if not name or not 0 < speed < float("inf"):
            raise BadOption(f"--configurator takes NAME or NAME=SPEED, got {text[:100]!r}")
        speeds[name] = speed
    return speeds


def read_owners(file: Path) -> dict[str, str]:
    """The configurator of each partition by id; BadOption if the file does not say that."""
    what = "a JSON object of configurators by partition"
    return _read("--owners", file, dict[str, str], what)


def read_shapes(file: Path) -> "Proposal":
    """The shapes that `dzflow trace shapes --shapes` has written; BadOption if they are not."""
    from spark.shapes.model import Proposal

    return _read("--shapes", file, Proposal, "a file of `dzflow trace shapes --shapes`")


def _read(option: str, file: Path, kind: type[T], what: str) -> T:
    """The JSON value in a file that an option names; BadOption if it is not of this kind."""
    import msgspec

    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except OSError as error:
        raise BadOption(f"{option} {file} cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadOption(f"{option} takes {what}; {file}: {error}") from None


def with_service(options: "RebalanceOptions", client: "httpx.Client") -> "RebalanceOptions":
    """The options with what a service says of owners and of configurators, unless they are given.

    Configurators that are to leave, or are down, get no partitions.
    """
    from msgspec.structs import replace

    known = checked(client.get("/configurators")).json()["items"]
    there = [each["id"] for each in known if each["state"] == "up" and not each["leaving"]]
    speeds = options.speeds or dict.fromkeys(there, 1.0)
    owners = options.owners
    if owners is None:
        items = checked(client.get("/partitions")).json()["items"]
        owners = {each["id"]: each["configurator"] for each in items}
    return replace(options, owners=owners, speeds=speeds)


def carry_out(client: "httpx.Client", plans: "list[SpacePlan]", wait: bool) -> None:
    """Have plans carried out, one after another."""
    import msgspec

    console = Console(stderr=True)
    for each in plans:
        begun = start_plan(client, msgspec.to_builtins(each))
        console.print(plain(f"the plan for {each.space} is being carried out"), highlight=False)
        if wait:
            follow_plan(client, begun, console)


def show(console: Console, found: "Rebalance") -> None:
    """Print what the job has found."""
    if not show_source(console, found.source):
        return
    if not found.spaces:
        console.print("There is no work that could be planned.")
    for each in found.spaces:
        _show_space(console, each)


def _show_space(console: Console, each: "SpaceResult") -> None:
    """The figures of one space before and after, and the plan in words."""
    text = f"{each.space}: {each.work_ms:,.1f} ms of work ({each.share:.0%} of all) on"
    text += f" {each.regions:,} regions of {each.filters:,} filters"
    console.print(f"\n[bold]{plain(text)}[/]; {each.pushed_ms:,.0f} ms waiting for switches")
    if each.sampled < each.regions:
        console.print(f"planned from a sample of {each.sampled:,} regions", highlight=False)
    if each.damaged:
        share = f"{each.damaged_share:.1%} of the work"
        console.print(
            f"[yellow]{each.damaged:,} filters ({share}) cannot be read, or do not fit[/]"
        )
    after = each.after if each.plan else None
    rows: list[tuple[str, ...]] = [
        (name, write(each.before), write(after) if after else "")
        for name, write in _FIGURES.items()
    ]
    print_table(console, "Predicted", ("", "now", "with the plan" if after else ""), rows)
    if each.plan:
        changes = f"{each.moved_share:.0%} of the work gets a new partition or another owner"
        once = f"{each.changed_entries:,} entries are added or removed once"
        console.print(f"{changes}; {once}", highlight=False)
        for reason in each.plan.reasons:
            console.print(plain(f"- {reason}"), highlight=False)
    else:
        console.print(plain(f"no plan: {each.why}"), highlight=False)


def _ms(value: float | None) -> str:
    return "without bound" if value is None else f"{value:,.2f}"


_FIGURES: "dict[str, Callable[[Prediction], str]]" = {
    "partitions": lambda p: f"{p.partitions:,}",
    "busiest configurator over the mean": lambda p: f"{p.imbalance:.2f}",
    "heaviest partition over the mean": lambda p: f"{p.partition_imbalance:.2f}",
    "wait for a configurator in ms": lambda p: _ms(p.waiting_ms),
    "latency of a partial in ms": lambda p: _ms(p.latency_ms),
    "entries": lambda p: f"{p.entries:,}",
    "flow operations": lambda p: f"{p.operations:,}",
}
