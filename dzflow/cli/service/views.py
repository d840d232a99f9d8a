"""`dzflow status`, `topology`, `switches`, …: show the state of a running control plane."""

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

import typer
from rich.console import Console
from rich.table import Table

from dzflow.cli.option_groups import with_option_groups
from dzflow.cli.service import topology
from dzflow.cli.service.client import AsJson, ServiceOptions, interruptible
from dzflow.cli.service.rest import checked, get, get_ready, open_client
from dzflow.cli.tables import plain, print_json, show_list
from dzflow.errors import DzflowError
from dzflow.process.private_files import write_private

NOT_READY = 2
"""The exit code of `dzflow status` when the service answers, but is not ready."""


class NoFile(DzflowError):
    """The backup file cannot be written or read."""


@with_option_groups
def status(*, json: AsJson = False, service: ServiceOptions) -> None:
    """Show whether the service is ready, degraded (and why) or not ready (then exits with 2)."""
    ready, found = get_ready(service)
    if json:
        print_json(found)
    else:
        console = Console()
        if "parts" in found:  # only operators get them
            table = Table("part", "state", "reason")
            for part in found["parts"]:
                shown = "[green]ok[/]" if part["ok"] else "[red]down[/]"
                table.add_row(plain(part["name"]), shown, plain(part.get("reason") or ""))
            console.print(table)
        for up, every, what in (
            ("switches_up", "switches", "switches are up"),
            ("partitions_ready", "partitions", "partitions are ready"),
        ):
            console.print(f"{found[up]} of {found[every]} {what}", highlight=False)
        if store := found.get("store"):
            _show_store(console, store)
        named, total = found.get("impaired") or [], found["impaired_counts"]["total"]
        if named:
            impaired = Table("impaired", "id", "since", "reason")
            for each in named:
                since = datetime.fromtimestamp(each["since"]).astimezone()
                row = (each["kind"], each["id"], f"{since:%Y-%m-%d %H:%M:%S}", each["reason"])
                impaired.add_row(*map(plain, row))
            console.print(impaired)
        if len(named) < total:
            console.print(f"{total - len(named)} impairments are not shown", highlight=False)
        if "parts" not in found:
            console.print("An operator's token shows the details.", highlight=False)
        colour = {"ready": "green", "degraded": "yellow"}.get(found["status"], "red")
        console.print(f"[{colour}]{plain(found['status'])}[/]")
        for reason in found.get("reasons") or []:
            console.print(f"  {plain(reason)}", highlight=False)
    if not ready:
        raise typer.Exit(NOT_READY)


@with_option_groups
def switches(*, json: AsJson = False, service: ServiceOptions) -> None:
    """Show the switches and their southbound processes."""
    _show(
        get(service, "/switches"),
        json,
        ("id", "label", "dpid", "state", "southbound", "hosts", "links", "reason"),
        ("dpid", "links", "hosts", "label"),
    )


@with_option_groups
def flows(
    *,
    switch: Annotated[str, typer.Argument(help="The switch, such as s1.")],
    source: Annotated[
        Literal["cp", "dp"],
        typer.Option(help="cp: what the control plane believes; dp: what the switch holds."),
    ] = "cp",
    json: AsJson = False,
    service: ServiceOptions,
) -> None:
    """Show the flow entries of a switch."""
    found = get(service, f"/switches/{quote(switch, safe='')}/flows", source=source)
    columns = ("table", "priority", "match", "in_port", "actions", "goto", "space", "partition")
    _show(found, json, columns, ("goto", "table", "in_port", "space"))


@with_option_groups
def backup(
    *,
    file: Annotated[Path, typer.Argument(help="The file to write; an existing one is replaced.")],
    service: ServiceOptions,
) -> None:
    """Write the state of the control plane (spaces, hosts, records) to a file, for you only."""
    with interruptible(), open_client(service) as client:
        data = checked(client.get("/backup")).content
    try:
        write_private(file, data)
    except OSError as error:
        raise NoFile(f"cannot write {file}: {error.strerror}") from None
    Console(stderr=True).print(f"{len(data)} bytes written to {plain(str(file))}", highlight=False)


@with_option_groups
def restore(
    *,
    file: Annotated[Path, typer.Argument(help="A file that `dzflow backup` has written.")],
    service: ServiceOptions,
) -> None:
    """Restore the state of the control plane from a file."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise NoFile(f"cannot read {file}: {error.strerror}") from None
    headers = {"Content-Type": "application/octet-stream"}
    with interruptible(), open_client(service) as client:
        counts = checked(client.post("/restore", content=data, headers=headers)).json()
    text = f"restored {counts['spaces']} spaces and {counts['records']} records"
    console = Console(stderr=True)
    console.print(text, highlight=False)
    if failed := counts["failed"]:
        console.print(f"[red]the switches refused {failed} records[/]", highlight=False)
        raise typer.Exit(1)


etcd = typer.Typer(help="The database of the control plane.", no_args_is_help=True)


@etcd.command()
@with_option_groups
def compact(*, json: AsJson = False, service: ServiceOptions) -> None:
    """Compact and defragment etcd's database now; exits with 2 if it is still at its quota.

    The service does so by itself when it pays. If the quota was reached, finished records are
    removed first. Every member of etcd is blocked for a while, one after the other.
    """
    with interruptible(), open_client(service) as client:
        found = checked(client.post("/etcd/compact")).json()
    if json:
        print_json(found)
    else:
        console = Console()
        for name, text in (("size", "size"), ("in_use", "in use")):
            before, after = found[f"{name}_before"], found[name]
            console.print(f"{text}: {_mib(before)}, now {_mib(after)}", highlight=False)
        console.print(f"quota: {_mib(found['quota'])}", highlight=False)
        if found["full"]:
            console.print("[red]etcd's database is still at its quota[/]")
    if found["full"]:
        raise typer.Exit(NOT_READY)


def add_to(app: typer.Typer) -> None:
    """Add these commands to the `dzflow` command."""
    commands: Sequence[Callable[..., None]] = (
        status,
        switches,
        flows,
        backup,
        restore,
    )
    for command in commands:
        app.command()(command)
    app.add_typer(etcd, name="etcd")
    app.add_typer(topology.app, name="topology")


def _show(found: dict[str, Any], json: bool, columns: Sequence[str], lesser: Sequence[str]) -> None:
    if json:
        print_json(found)
    else:
        show_list(found["items"], columns, lesser)


def _show_store(console: Console, store: dict[str, Any]) -> None:
    size, quota = store["size"], store["quota"]
    colour = {"normal": "green", "high": "yellow"}.get(store["level"], "red")
    console.print(
        f"etcd has {_mib(size)} of {_mib(quota)} ([{colour}]{size / quota:.0%}[/]),"
        f" {_mib(store['in_use'])} in use; {store['finished_records']:,} finished records and"
        f" {store['idempotency_keys']:,} idempotency keys are kept",
        highlight=False,
    )


def _mib(size: int) -> str:
    return f"{size / (1 << 20):,.0f} MiB"
