"""`dzflow partitions`: show the partitions, move one, change partition maps."""

from typing import Annotated
from urllib.parse import quote

import typer
from rich.console import Console

from dzflow.cli.option_groups import with_option_groups
from dzflow.cli.service.client import AsJson, ServiceOptions, interruptible
from dzflow.cli.service.plans import plan
from dzflow.cli.service.rest import checked, get, open_client
from dzflow.cli.tables import plain, print_json, show_list
from dzflow.errors import DzflowError

app = typer.Typer(help="Show the partitions, move one, or change the map of a space.")
app.command()(plan)


class NotMoved(DzflowError):
    """A partition that has not moved within the time."""


@app.callback(invoke_without_command=True)
@with_option_groups
def show(
    *,
    context: typer.Context,
    json: AsJson = False,
    service: ServiceOptions,
) -> None:
    """Show the partitions, their owners and load."""
    if context.invoked_subcommand is not None:
        return
    found = get(service, "/partitions")
    if json:
        print_json(found)
        return
    columns = ("id", "space", "configurator", "state", "queued", "active", "entries", "tasks")
    show_list(found["items"], (*columns, "reason"), ("tasks", "queued", "entries", "active"))
    for move in found["moves"]:
        text = f"{move['partition']} moves from {move['source']} to {move['target']}"
        Console().print(plain(f"{text}: {move['phase']}"), highlight=False)


@app.command()
@with_option_groups
def migrate(
    *,
    id: Annotated[str, typer.Argument(help="The partition, as `dzflow partitions` shows it.")],
    to: Annotated[str, typer.Option(help="The configurator that is to own it.")],
    json: AsJson = False,
    service: ServiceOptions,
) -> None:
    """Move a partition to another configurator; no flow is touched."""
    with interruptible(), open_client(service) as client:
        body = {"to": to, "wait": 60}
        answer = checked(client.post(f"/partitions/{quote(id, safe='')}/migrate", json=body))
    if json:
        print_json(answer.json())
    elif answer.status_code == 200:
        Console(stderr=True).print(plain(f"{id} has moved to {to}"), highlight=False)
    if answer.status_code != 200:
        raise NotMoved(f"{id} is still moving to {to}; `dzflow partitions` shows how far it is")


def add_to(parent: typer.Typer) -> None:
    """Add these commands to the `dzflow` command."""
    parent.add_typer(app, name="partitions")
