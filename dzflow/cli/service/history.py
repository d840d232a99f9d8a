"""`dzflow history`: what happened to workers and partitions."""

from datetime import datetime
from typing import Annotated, Any

import typer
from rich.console import Console

from dzflow.cli.option_groups import with_option_groups
from dzflow.cli.service.client import AsJson, ServiceOptions, interruptible
from dzflow.cli.service.rest import checked, open_client
from dzflow.cli.tables import print_json, show_list


@with_option_groups
def history(
    *,
    since: Annotated[
        float,
        typer.Option(help="Seconds since 1970, or, if negative, seconds before now."),
    ] = -3600.0,
    json: AsJson = False,
    service: ServiceOptions,
) -> None:
    """Show moves, take-overs, restarts, plans and lost switches, of the last hour by default.

    An API process remembers what it has heard since it has started.
    """
    items: list[dict[str, Any]] = []
    complete = True
    after: float | None = since
    with interruptible(), open_client(service) as client:
        while after is not None:
            page = checked(client.get("/history", params={"since": str(after)})).json()
            items += page["items"]
            complete = complete and page["complete"]
            after = page["next"]
    if json:
        print_json({"items": items, "complete": complete})
        return
    rows = [
        {
            "time": f"{datetime.fromtimestamp(item['at']).astimezone():%Y-%m-%d %H:%M:%S}",
            "what": f"{item['kind']} {item['action']}",
            "text": item["text"],
            "seconds": "" if item["seconds"] is None else f"{item['seconds']:.1f}",
            "cause": item["cause"],
            "reason": item["reason"],
        }
        for item in items
    ]
    show_list(rows, ("time", "what", "text", "seconds", "cause", "reason"), ("cause", "seconds"))
    if not complete:
        console = Console(stderr=True)
        console.print("Earlier events of this time were forgotten.", highlight=False)


def add_to(app: typer.Typer) -> None:
    """Add this command to the `dzflow` command."""
    app.command()(history)
