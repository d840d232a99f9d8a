"""`dzflow topology`: show the network, or write it to a file."""

import json as json_lib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.console import Console
from rich.table import Table

from dzflow.cli.service.client import URL, AsJson, Ca, Token, Url, interruptible
from dzflow.cli.service.rest import checked, get, open_client
from dzflow.cli.tables import plain, print_json, state
from dzflow.errors import BadInput

app = typer.Typer(help="Show the network, or write it to a file.")

SUFFIXES = (".json", ".yaml", ".yml")


class NoExport(BadInput):
    """The network cannot be written to this file."""


@app.callback(invoke_without_command=True)
def show(
    context: typer.Context,
    json: AsJson = False,
    url: Url = URL,
    token: Token = None,
    ca: Ca = None,
) -> None:
    """Show hosts, links and trees, and where the network is not what it should be."""
    if context.invoked_subcommand is not None:
        return
    found = get(url, token, ca, "/topology")
    if json:
        print_json(found)
        return
    console = Console()
    hosts = Table("host", "switch", "port", "endpoint", title="hosts", title_justify="left")
    for host in found["hosts"]:
        row = (host["id"], host["switch"], host["port"], host.get("wire") or "")
        hosts.add_row(*map(plain, row))
    links = Table("link", "state", title="links", title_justify="left")
    for link in found["links"]:
        links.add_row(plain(_link(link)), state("up" if link["up"] else "down"))
    trees = Table("tree", "root", "links", "whole", title="trees", title_justify="left")
    for tree in found["trees"]:
        whole = "yes" if tree["whole"] else f"no: {', '.join(tree['broken'])}"
        trees.add_row(*map(plain, (tree["number"], tree["root"], len(tree["links"]), whole)))
    for table in (hosts, links, trees):
        console.print(table)
    if found["differences"]:
        kinds = Table("difference", "what was found", title="differences", title_justify="left")
        for one in found["differences"]:
            kinds.add_row(*map(plain, (one["kind"], one["text"])))
        console.print(kinds)


@app.command()
def export(
    file: Annotated[
        Path, typer.Argument(help="The file to write, .json or .yaml; an existing one is replaced.")
    ],
    url: Url = URL,
    token: Token = None,
    ca: Ca = None,
) -> None:
    """Write the network to a topology file, for `dzflow up --topology`."""
    if file.suffix not in SUFFIXES:
        raise NoExport(f"{file}: the name of a topology file ends in {', '.join(SUFFIXES)}")
    found = get(url, token, ca, "/topology")
    members = {
        "switches": ("id", "dpid"),
        "links": ("a", "a_port", "b", "b_port"),
        "hosts": ("id", "switch", "port", "mac", "ipv6"),
    }
    document = {
        section: [_chosen(one, names) for one in found[section]]
        for section, names in members.items()
    }
    try:
        # JSON is YAML, too.
        file.write_text(json_lib.dumps(document, indent=1) + "\n")
    except OSError as error:
        raise NoExport(f"cannot write {file}: {error.strerror}") from None
    counts = ", ".join(f"{len(document[section])} {section}" for section in members)
    Console(stderr=True).print(f"{counts} written to {plain(str(file))}", highlight=False)


@app.command()
def forget(
    name: Annotated[str, typer.Argument(help="A switch, such as s7, or a link: s1:2-s7:1.")],
    url: Url = URL,
    token: Token = None,
    ca: Ca = None,
) -> None:
    """Remove a switch or a link that is gone for good from a discovered network."""
    kind = "links" if ":" in name else "switches"
    with interruptible(), open_client(url, token, ca) as client:
        checked(client.delete(f"/{kind}/{quote(name, safe='')}"))
    Console(stderr=True).print(f"{plain(name)} is removed", highlight=False)


def _chosen(one: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: one[name] for name in names if one[name] is not None}


def _link(link: dict[str, Any]) -> str:
    return f"{link['a']}:{link['a_port']} - {link['b']}:{link['b_port']}"
