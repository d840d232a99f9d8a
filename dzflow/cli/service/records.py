"""`dzflow space`, `subscriptions` and `advertisements`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Console

from dzflow.cli.option_groups import with_option_groups
from dzflow.cli.service.client import AsJson, ServiceOptions, interruptible
from dzflow.cli.tables import print_json, show_list
from dzflow.errors import BadInput

if TYPE_CHECKING:
    from dzflow.sdk.rest.api_protocol import Kind

Host = Annotated[str | None, typer.Option(help="Of this host only.")]
Space = Annotated[str | None, typer.Option(help="In this space only.")]
Limit = Annotated[int, typer.Option(min=1, max=1_000, help="Show at most this many.")]


class BadSchema(BadInput):
    """The file does not contain the schema of a space."""


spaces = typer.Typer(help="Spaces: the schemas of events.", no_args_is_help=True)


@spaces.command("put")
@with_option_groups
def put_space(
    *,
    name: Annotated[str, typer.Argument(help="The name of the space.")],
    file: Annotated[
        str, typer.Argument(help="A file with its schema, as JSON or YAML; - reads standard input.")
    ],
    service: ServiceOptions,
) -> None:
    """Create a space or change its schema, and print it when every process uses it."""

    schema = _schema(file)
    with interruptible(), service.rest() as rest:
        print_json(rest.put_space(name, schema))


@spaces.command("list")
@with_option_groups
def list_spaces(*, json: AsJson = False, service: ServiceOptions) -> None:
    """Show all spaces and their attributes."""

    with interruptible(), service.rest() as rest:
        found = rest.spaces()
    if json:
        print_json({"items": found})
        return
    shown = [{**space, "attributes": list(map(_attribute, space["attributes"]))} for space in found]
    columns = ("name", "number", "version", "authentication", "attributes")
    show_list(shown, columns, ("version", "authentication"))


@spaces.command("new-key")
@with_option_groups
def new_key(
    *,
    name: Annotated[str, typer.Argument(help="The name of the space.")],
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds for which the former key stays valid.")
    ] = 120.0,
    service: ServiceOptions,
) -> None:
    """Make a new key for a space whose events carry tags, and print the key's number."""

    with interruptible(), service.rest() as rest:
        print(int(rest.new_key(name, grace)["key"]))


@with_option_groups
def subscriptions(
    *,
    host: Host = None,
    space: Space = None,
    limit: Limit = 100,
    json: AsJson = False,
    service: ServiceOptions,
) -> None:
    """Show the subscriptions."""
    _records("subscription", host, space, limit, json, service)


@with_option_groups
def advertisements(
    *,
    host: Host = None,
    space: Space = None,
    limit: Limit = 100,
    json: AsJson = False,
    service: ServiceOptions,
) -> None:
    """Show the advertisements."""
    _records("advertisement", host, space, limit, json, service)


def add_to(app: typer.Typer) -> None:
    """Add these commands to the `dzflow` command."""
    app.add_typer(spaces, name="space")
    app.command()(subscriptions)
    app.command()(advertisements)


def _records(
    kind: "Kind",
    host: str | None,
    space: str | None,
    limit: int,
    json: bool,
    service: ServiceOptions,
) -> None:

    with interruptible(), service.rest() as rest:
        page = rest.get(f"/{kind}s", host=host, space=space, limit=limit)
    if json:
        print_json(page)
        return
    shown = [{**record, "filter": _text(record["filter"])} for record in page["items"]]
    columns = ("id", "host", "space", "filter", "state", "flow_ops", "label", "reason")
    show_list(shown, columns, ("label", "reason", "flow_ops", "space"))
    if page.get("next") is not None:
        Console(stderr=True).print(f"there are more than {limit}: see --limit and --host")


def _schema(file: str) -> dict[str, Any]:
    name = "standard input" if file == "-" else file
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text()
    except OSError as error:
        raise BadSchema(f"cannot read {name}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise BadSchema(f"{name} is not text: {error}") from None
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        found = _yaml(name, text, error)
    if not isinstance(found, dict):
        raise BadSchema(f'{name} does not contain an object such as {{"attributes": […]}}')
    return found


def _yaml(name: str, text: str, no_json: Exception) -> Any:
    try:
        import yaml
    except ImportError:
        reason = f"{name} is not JSON ({no_json}); to read YAML, install pyyaml"
        raise BadSchema(reason) from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise BadSchema(f"{name} is neither JSON nor YAML: {reason}") from None


def _attribute(told: dict[str, Any]) -> str:
    return f"{told['name']} ({told['type']})"


def _text(filter: Any) -> str:
    return filter if isinstance(filter, str) else msgspec.json.encode(filter).decode()
