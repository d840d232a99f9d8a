"""`dzflow up`: runs the whole service on this machine."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

from dzflow.cli.option_groups import with_option_groups
from dzflow.cli.options import StartOptions, settings_of
from dzflow.cli.service.client import URL
from dzflow.cli.tables import plain, plain_lines

if TYPE_CHECKING:
    from api.start.roles import Only
    from api.start.settings.settings import Settings
    from api.start.up import Service

# As `Only` in api/start/roles.py, which is not imported before it is needed.
Role = Literal["workers", "api", "dashboard", "southbound", "configurators", "network"]

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@with_option_groups
def up(
    *,
    options: StartOptions,
    only: Annotated[
        Role | None,
        typer.Option(help="Start these parts only; the others run elsewhere, with the same etcd."),
    ] = None,
) -> None:
    """Start the whole service and run it until Ctrl-C, which stops all its processes."""
    settings = settings_of(options)
    console = Console(stderr=True)
    with running(settings, only, console) as (service, ended):
        show(service, only, Console())
        ended()


def down(
    *,
    config: Annotated[Path | None, typer.Option(help="A TOML or YAML file with settings.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder for all data.")] = None,
) -> None:
    """End the configurators that `dzflow up --only configurators` has left on a Ray cluster."""
    settings = settings_of(StartOptions(config=config, data_dir=data_dir))
    with running(settings, "down", Console(stderr=True)):
        Console().print("[bold green]no configurator runs any more[/]")


@contextmanager
def running(
    settings: "Settings", only: "Only | None", console: Console
) -> "Iterator[tuple[Service, Callable[[], None]]]":
    """The running service, and a function that waits for a signal to end it.

    The first signal ends the service in order, also while it starts; the second one kills it.
    """
    from api.start import logs
    from api.start.hardening import harden_process
    from api.start.up import Service

    harden_process()

    status = console.status("starting")
    started = False
    ending = threading.Event()

    def tell(text: str) -> None:
        if started and not ending.is_set():
            console.print(f"[yellow]{plain_lines(text)}[/]", highlight=False)
        else:
            status.update(plain_lines(text))

    service = Service(settings, only, tell, lambda: logs.configure(settings, "up"))

    def signalled(number: int, _: Any) -> None:
        if ending.is_set():
            service.force()
            return
        ending.set()
        raise Ended(number)

    before = {number: signal.signal(number, signalled) for number in _ENDS}
    try:
        status.start()
        with service:
            started = True
            status.stop()
            try:
                yield service, _forever
            finally:
                ending.set()
                status.start()
    except Ended as ended:
        if not started:
            raise typer.Exit(128 + ended.number) from None
    finally:
        status.stop()
        for number, handler in before.items():
            signal.signal(number, handler)


class Ended(BaseException):
    """A signal asked the service to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _forever() -> None:
    threading.Event().wait()


def show(service: "Service", only: Role | None, console: Console) -> None:
    """Print the addresses of the service, and commands to try."""
    settings, network = service.settings, service.network
    rows = Table.grid(padding=(0, 2))
    serves = only in (None, "api", "dashboard")
    if serves:
        rows.add_row("API", service.url)
        rows.add_row("documentation", f"{service.url}/docs")
        rows.add_row("dashboard", f"{service.url}/dashboard")
    hosts = [host.id for host in network.hosts]
    shown = ", ".join(hosts[:8]) + (f", … ({len(hosts)})" if len(hosts) > 8 else "")
    rows.add_row("network", f"{len(network.switches)} switches, {settings.data_plane}")
    rows.add_row("hosts", plain(shown))
    rows.add_row("workers", _workers(settings, only))
    rows.add_row("data", plain(str(settings.data_dir)))
    console.print("[bold green]dzflow is ready[/]")
    console.print(rows)
    for hint in service.hints:
        console.print(f"[yellow]note:[/] {plain_lines(hint)}", highlight=False)
    if len(hosts) > 1 and serves:
        console.print("\nTry, in other terminals:")
        for line in _to_try(service, hosts):
            # Not wrapped, so that it can be copied.
            console.print(f"  {line}", soft_wrap=True, highlight=False, markup=False)
    if only == "configurators":
        console.print("\nCtrl-C stops this process. The configurators go on.")
    else:
        console.print("\nCtrl-C stops everything.")


def _workers(settings: "Settings", only: Role | None) -> str:
    """The workers that were started here."""
    southbound = f"{settings.southbound} southbound"
    configurators = f"{settings.configurators} configurators"
    if only in (None, "workers"):
        by_ray = settings.southbound_placed == "ray"
        return f"{configurators}, {southbound if by_ray else 'southbound processes run elsewhere'}"
    here = {"southbound": "1 southbound process", "configurators": f"{configurators}, on Ray"}
    return here.get(only, "run elsewhere")


def _to_try(service: "Service", hosts: list[str]) -> list[str]:
    command = "dzflow" if which("dzflow") else sys.argv[0]
    at = "" if service.url == URL else f" --url {service.url}"
    lab = f"{command} lab exec --lab {service.lab}"
    there = [f"{lab} {host} -- " if service.lab else "" for host in hosts[:2]]
    schema = '{"attributes": [{"name": "price", "type": "float", "min": 0, "max": 1000}]}'
    return [
        f"echo '{schema}' | {command} space put{at} stocks -",
        f"{there[0]}{command} listen{at} --host {hosts[0]} --space stocks --filter 'price > 420'",
        f"{there[1]}{command} publish{at} --host {hosts[1]} --space stocks '{{\"price\": 500}}'",
        f"{command} status{at}",
    ]
