"""`dzflow configurators` and `dzflow southbound`: show the workers, and change their number."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from dzflow.cli.option_groups import with_option_groups
from dzflow.cli.service.client import AsJson, ServiceOptions, interruptible
from dzflow.cli.service.rest import checked, get, open_client
from dzflow.cli.tables import plain, print_json, show_list
from dzflow.errors import DzflowError

if TYPE_CHECKING:
    import httpx

_LOOK_EVERY = 0.5


class OtherCount(DzflowError):
    """Another call has asked for another number of workers."""


Count = Annotated[int, typer.Argument(help="How many there should be.", min=1)]
Wait = Annotated[
    bool, typer.Option("--wait", help="Wait until it is so; say what is being waited for.")
]

configurators = typer.Typer(help="Show the configurators and their load, or change their number.")
southbound = typer.Typer(help="Show the southbound processes, or change their number.")


@configurators.callback(invoke_without_command=True)
@with_option_groups
def show_configurators(
    *,
    context: typer.Context,
    json: AsJson = False,
    service: ServiceOptions,
) -> None:
    """Show the configurators and their load, or change their number."""
    if context.invoked_subcommand is None:
        columns = ("id", "state", "address", "pid", "partitions", "queued", "active", "tasks")
        lesser = ("tasks", "pid", "address", "queued", "active")
        _show(get(service, "/configurators"), json, columns, lesser)


@southbound.callback(invoke_without_command=True)
@with_option_groups
def show_southbound(
    *,
    context: typer.Context,
    json: AsJson = False,
    service: ServiceOptions,
) -> None:
    """Show the southbound processes, or change their number."""
    if context.invoked_subcommand is None:
        columns = ("id", "state", "openflow", "address", "pid", "switches")
        _show(get(service, "/southbound"), json, columns, ("pid", "address"))


@configurators.command("scale")
@with_option_groups
def scale_configurators(
    *,
    count: Count,
    wait: Wait = False,
    json: AsJson = False,
    service: ServiceOptions,
) -> None:
    """Have so many configurators; those that are too many leave when they own no partition."""
    with interruptible(), open_client(service) as client:
        _scale(client, "/configurators", count, wait, json)


@southbound.command("scale")
@with_option_groups
def scale_southbound(
    *,
    count: Count,
    wait: Wait = False,
    json: AsJson = False,
    service: ServiceOptions,
) -> None:
    """Have so many southbound processes; those that are too many leave when they hold no switch."""
    with interruptible(), open_client(service) as client:
        _scale(client, "/southbound", count, wait, json)


def add_to(app: typer.Typer) -> None:
    """Add these commands to the `dzflow` command."""
    app.add_typer(configurators, name="configurators")
    app.add_typer(southbound, name="southbound")


def _scale(client: "httpx.Client", path: str, count: int, wait: bool, json: bool) -> None:
    console = Console(stderr=True)
    found = checked(client.post(path, json={"count": count})).json()
    console.print(f"there now: {found['present']}, wanted: {found['wanted']}", highlight=False)
    if wait:
        present = _await_count(client, path, count, console)
        console.print(f"there now: {present}", highlight=False)
        found = {"present": present, "wanted": count, "leaving": []}
    if json:
        print_json(found)


def _await_count(client: "httpx.Client", path: str, count: int, console: Console) -> int:
    """Wait until there are as many as are wanted, and tell what is missing; how many there are."""
    told: list[str] = []
    known = False
    while True:
        found = checked(client.get(path)).json()
        if known and found["wanted"] != count:
            raise OtherCount(f"somebody else has asked for {found['wanted']} meanwhile")
        known = found["wanted"] == count  # else the API process has not heard of it yet
        missing = _missing(found)
        if known and not missing:
            return len(found["items"])
        for text in missing:
            if text not in told:
                console.print(plain(text), highlight=False)
        told = missing
        time.sleep(_LOOK_EVERY)


def _missing(found: dict[str, Any]) -> list[str]:
    """What has to happen until there are as many workers as are wanted, as texts."""
    items = found["items"]
    texts = [_with_reason(f"{each['id']} leaves", each) for each in items if each["leaving"]]
    staying = [each for each in items if not each["leaving"]]
    texts += [_with_reason(f"{e['id']} is {e['state']}", e) for e in staying if e["state"] != "up"]
    if len(staying) < found["wanted"]:
        texts.append(f"started: {len(staying)} of {found['wanted']}")
    return texts


def _with_reason(text: str, each: dict[str, Any]) -> str:
    return f"{text}: {each['reason']}" if each.get("reason") else text


def _show(found: dict[str, Any], json: bool, columns: Sequence[str], lesser: Sequence[str]) -> None:
    if json:
        print_json(found)
        return
    items = [each | {"state": _state(each)} for each in found["items"]]
    show_list(items, (*columns, "reason"), lesser)
    if len(items) != found["wanted"]:
        Console().print(f"wanted: {found['wanted']}", highlight=False)


def _state(each: dict[str, Any]) -> str:
    return "leaving" if each["leaving"] else each["state"]
