"""`dzflow demo`: starts the service, publishes stock quotes, and checks every delivery."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, wait
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from dzflow.cli.demo.hosts import Participant
from dzflow.cli.demo.quotes import (
    SCHEMA,
    SPACE,
    Quote,
    endless_filters,
    endless_quotes,
    filters,
    quotes,
)
from dzflow.cli.option_groups import with_option_groups
from dzflow.cli.options import StartOptions, settings_of
from dzflow.cli.up import running
from dzflow.errors import BadInput

if TYPE_CHECKING:
    from api.start.up import Service

PUBLISHERS = 2
MOST_HOSTS = 16
_QUIET = 10.0  # seconds without an event after which the demo stops waiting
_LONGEST_WAIT = 30.0
_KEPT_RATE = 50.0  # quotes per second after the verdict
_CHANGE_EVERY = 4.0  # seconds after which a host changes a filter then


class NotForDemo(BadInput):
    """The demo cannot run with these settings."""


class TooFewHosts(BadInput):
    """The network has fewer than two hosts."""


@dataclass(frozen=True)
class Workload:
    """The size of the demo."""

    events: Annotated[int, typer.Option(min=1, max=1_000_000, help="Number of quotes.")] = 3_000
    rate: Annotated[float, typer.Option(min=1, help="Quotes per second.")] = 500.0
    subscriptions: Annotated[int, typer.Option(min=1, help="Subscriptions per host.")] = 5
    seed: Annotated[int, typer.Option(help="Seed for quotes and filters.")] = 1
    keep: Annotated[
        bool,
        typer.Option(help="After the verdict, keep quotes flowing for the dashboard until Ctrl-C."),
    ] = False


class Outcome(NamedTuple):
    """The deliveries to one host."""

    host: str
    subscriptions: int
    wanted: int
    delivered: int
    missed: int
    surplus: int
    unwanted: int
    latencies: list[float]  # in seconds


@with_option_groups
def demo(
    *,
    options: StartOptions,
    work: Workload,
) -> None:
    """Start the service, publish stock quotes, and check every delivery.

    Exits with 0 only if no host missed a quote. Without --data-dir no data is kept.
    """
    console = Console(stderr=True)
    with ExitStack() as stack:
        if options.data_dir is None:
            folder = stack.enter_context(TemporaryDirectory(prefix="dzflow-demo-"))
            options = replace(options, data_dir=Path(folder))
        if options.port is None:
            options = replace(options, port=0)
        settings = settings_of(options)
        if settings.data_plane not in ("emulated", "ovs"):
            raise NotForDemo(
                f"the demo runs the hosts itself, which is impossible with {settings.data_plane};"
                " choose --data-plane emulated or ovs"
            )
        if settings.tls.cert:
            raise NotForDemo("the demo does not support TLS; start it without tls.cert")
        if settings.tokens.hosts and not settings.tokens.operator:
            raise NotForDemo("the demo acts for all hosts; set one of tokens.operator, too")
        good: bool | None = None

        def judge(outcomes: Sequence[Outcome], operations: int) -> None:
            nonlocal good
            good = show_verdict(outcomes, operations, work.events, Console())

        with running(settings, None, console) as (service, _):
            console.print(f"the service is ready at {service.url}", highlight=False)
            _drive(service, work, console, judge)
        if good is None:
            raise typer.Exit(130)
        if not work.keep:
            console.print(
                'To see it in a browser while quotes flow: make demo ARGS="--keep"',
                highlight=False,
            )
    raise typer.Exit(0 if good else 1)


def _drive(
    service: "Service",
    work: Workload,
    console: Console,
    judge: Callable[[Sequence[Outcome], int], None],
) -> None:
    """Run all hosts; `judge` gets the deliveries to each, and the number of flow operations."""
    from dzflow.sdk import Rest

    settings = service.settings
    token = settings.tokens.operator[0].get_secret_value() if settings.tokens.operator else None
    names = [host.id for host in service.network.hosts][:MOST_HOSTS]
    if len(names) < 2:
        raise TooFewHosts("this network has fewer than two hosts; choose another --topology")
    events = quotes(work.events, work.seed)
    columns = (
        TextColumn("{task.description:<14}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Rest(service.url, token) as rest, ExitStack() as stack:
        rest.put_space(SPACE, SCHEMA)
        namespaces = _namespaces(service.lab)
        hosts = [Participant(name, service.url, token, namespaces.get(name)) for name in names]
        for host in hosts:
            stack.callback(host.close)
        with Progress(*columns, console=console) as progress:
            _subscribe(hosts, work, progress)
            operations = sum(
                record["flow_ops"]
                for record in (*rest.records("subscription"), *rest.records("advertisement"))
            )
            _publish(hosts, events, work.rate, progress)
            wanted = {host.host: _wanted(host, events) for host in hosts}
            total = sum(len(each) for found in wanted.values() for each in found)
            _await_all(hosts, total, progress)
        judge([_outcome(host, wanted[host.host], _sent(hosts)) for host in hosts], operations)
        if work.keep:
            _keep_flowing(service.url, hosts, work.seed, console)


def _keep_flowing(url: str, hosts: Sequence[Participant], seed: int, console: Console) -> None:
    """Publish quotes and change filters until a signal ends the demo."""
    console.print(
        f"Quotes keep flowing. See them at {url}/dashboard; Ctrl-C stops everything.",
        highlight=False,
        soft_wrap=True,
    )
    for host in hosts:
        host.recording = False
    endless = [
        *(
            host.begin(host.publish(endless_quotes(seed + place), _KEPT_RATE / PUBLISHERS))
            for place, host in enumerate(hosts[:PUBLISHERS])
        ),
        *(
            host.begin(host.change_filters(endless_filters(seed + place), _CHANGE_EVERY))
            for place, host in enumerate(hosts)
        ),
    ]
    try:
        for each in wait(endless, return_when=FIRST_EXCEPTION).done:
            each.result()
    finally:
        for each in endless:
            each.cancel()


def _namespaces(lab: str | None) -> dict[str, str]:
    """The namespace of each host of a lab."""
    if lab is None:
        return {}
    from sdn.lab.registry import default_root
    from sdn.lab.registry import running as labs

    return next(found.namespaces for found in labs(default_root()) if found.tag == lab)


def _subscribe(hosts: Sequence[Participant], work: Workload, progress: Progress) -> None:
    task = progress.add_task("subscribing", total=len(hosts))
    all_filters = filters(len(hosts) * work.subscriptions, work.seed)
    pending = []
    for place, host in enumerate(hosts):
        own = all_filters[place * work.subscriptions : (place + 1) * work.subscriptions]
        advertised = ["price >= 0"] if place < PUBLISHERS else []
        pending.append(host.begin(host.open(own, advertised)))
    for each in pending:
        each.result()
        progress.advance(task)


def _publish(
    hosts: Sequence[Participant], events: Sequence[Quote], rate: float, progress: Progress
) -> None:
    task = progress.add_task("publishing", total=len(events))
    publishers = hosts[:PUBLISHERS]
    share = rate / len(publishers)
    under_way = [
        host.begin(host.publish(events[place :: len(publishers)], share))
        for place, host in enumerate(publishers)
    ]
    while not all(each.done() for each in under_way):
        progress.update(task, completed=sum(len(host.sent) for host in publishers))
        time.sleep(0.05)
    for each in under_way:
        each.result()
    progress.update(task, completed=len(events))


def _wanted(host: Participant, events: Sequence[Quote]) -> list[set[int]]:
    """The quotes that each subscription of a host must get, computed without the network."""
    from dzflow.filters import parse_filter
    from dzflow.space import Space

    space = Space.from_json(SPACE, SCHEMA)
    read = [parse_filter(space, source) for source in host.filters]
    keyed = [(event["number"], space.keys(event)) for event in events]
    return [{number for number, keys in keyed if filter.matches(keys)} for filter in read]


def _await_all(hosts: Sequence[Participant], wanted: int, progress: Progress) -> None:
    """Wait until all events have arrived, or no more arrive."""
    task = progress.add_task("receiving", total=wanted)
    deadline = time.monotonic() + _LONGEST_WAIT
    quiet_since, before = time.monotonic(), -1
    while time.monotonic() < deadline:
        arrived = sum(len(got) for host in hosts for got in host.got)
        progress.update(task, completed=min(arrived, wanted))
        if arrived != before:
            quiet_since, before = time.monotonic(), arrived
        if arrived >= wanted or time.monotonic() - quiet_since > _QUIET:
            return
        time.sleep(0.05)


def _sent(hosts: Sequence[Participant]) -> dict[int, float]:
    return {number: at for host in hosts for number, at in host.sent.items()}


def _outcome(host: Participant, wanted: Sequence[set[int]], sent: dict[int, float]) -> Outcome:
    missed = surplus = delivered = 0
    latencies = []
    for numbers, got in zip(wanted, host.got, strict=True):
        came = Counter(each.number for each in got)
        missed += len(numbers - came.keys())
        delivered += len(numbers & came.keys())
        # Duplicates, or events that do not match: the SDK should have dropped them.
        surplus += came.total() - len(numbers & came.keys())
        latencies += [each.at - sent[each.number] for each in got]
    total = sum(len(numbers) for numbers in wanted)
    return Outcome(
        host.host, len(wanted), total, delivered, missed, surplus, host.unwanted(), latencies
    )


def show_verdict(
    outcomes: Sequence[Outcome], operations: int, events: int, console: Console
) -> bool:
    """Print the result; True if every host got exactly its quotes."""
    table = Table(box=SIMPLE_HEAD, show_footer=True, pad_edge=False, padding=(0, 1, 0, 0))
    everyone = [latency for each in outcomes for latency in each.latencies]
    total = [sum(column) for column in zip(*(each[1:7] for each in outcomes), strict=True)]
    heads = ("filters", "wanted", "delivered", "missed", "surplus", "unwanted")
    table.add_column("host", footer="all")
    for head, number in zip(heads, total, strict=True):
        table.add_column(head, footer=str(number), justify="right")
    for share in (50, 99):
        table.add_column(f"p{share} ms", footer=_percentile(everyone, share), justify="right")
    for each in outcomes:
        numbers = (str(number) for number in each[1:7])
        times = (_percentile(each.latencies, share) for share in (50, 99))
        table.add_row(each.host, *numbers, *times)
    console.print(table)
    missed, surplus, unwanted = total[3:]
    console.print(
        f"{events} quotes published, {total[2]} deliveries, {operations} flow operations;"
        f" the network delivered {unwanted} unwanted events, which the SDK dropped",
        highlight=False,
    )
    good = not missed and not surplus
    console.print(
        "[green]nothing was missed[/]" if good else f"[red]{missed} missed, {surplus} surplus[/]"
    )
    return good


def _percentile(values: Sequence[float], share: int) -> str:
    if not values:
        return ""
    place = min(len(values) - 1, len(values) * share // 100)
    return f"{sorted(values)[place] * 1000:.2f}"
