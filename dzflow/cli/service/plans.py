"""`dzflow partitions plan`: change the partition map of a space while it is in use."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Console

from dzflow.cli.option_groups import BadOption, with_option_groups
from dzflow.cli.service.client import AsJson, ServiceOptions, interruptible
from dzflow.cli.service.rest import checked, open_client
from dzflow.cli.tables import plain, print_json
from dzflow.errors import DzflowError

if TYPE_CHECKING:
    import httpx

_PATH = "/partitions/plan"
_LOOK_EVERY = 0.5


class PlanAborted(DzflowError):
    """A plan that was not carried out to its end."""


class BadPlanFile(DzflowError):
    """A file that has no plan."""


@with_option_groups
def plan(
    *,
    file: Annotated[
        Path | None, typer.Argument(help="A plan in JSON; --template prints one to start from.")
    ] = None,
    template: Annotated[
        str, typer.Option(metavar="SPACE", help="Print a plan that changes nothing.")
    ] = "",
    show: Annotated[bool, typer.Option("--show", help="Show the last plan of each space.")] = False,
    abort: Annotated[
        bool, typer.Option("--abort", help="Abort a plan; steps that are done stay.")
    ] = False,
    space: Annotated[
        str, typer.Option(help="Whose plan to abort, if several are being carried out.")
    ] = "",
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the plan has ended; say how far it is.")
    ] = False,
    json: AsJson = False,
    service: ServiceOptions,
) -> None:
    """Change the partition map of a space, as a plan in a file says; no flow is interrupted."""
    if sum(map(bool, (file, template, show, abort))) != 1:
        raise BadOption("give the file of a plan, or one of --template, --show and --abort")
    with interruptible(), open_client(service) as client:
        if template:
            print_json(_template(checked(client.get("/partitions")).json(), template))
        elif show:
            found = checked(client.get(_PATH)).json()
            if json:
                print_json(found)
            for each in () if json else found["items"]:
                _print_plan(Console(), each)
        else:
            if file:
                begun = start_plan(client, _read(file))
            else:
                params = {"space": space} if space else {}
                begun = checked(client.delete(_PATH, params=params)).json()
            console = Console(stderr=True)
            ended = _await_end(client, begun, console) if wait else begun
            if json:
                print_json(ended)
            elif not wait:
                _print_plan(console, ended)
            if wait and file:
                _check_done(ended)


def start_plan(client: "httpx.Client", body: Any) -> dict[str, Any]:
    """Have a plan carried out; the plan as it begins, or the error that refuses it."""
    begun: dict[str, Any] = checked(client.post(_PATH, json=body)).json()
    return begun


def follow_plan(client: "httpx.Client", begun: dict[str, Any], console: Console) -> None:
    """Wait until a plan has ended, and tell how far it is; PlanAborted if it is not done then."""
    _check_done(_await_end(client, begun, console))


def _check_done(ended: dict[str, Any]) -> None:
    if ended["phase"] != "done":
        raise PlanAborted(f"the plan for {ended['space']} was aborted: {ended['text']}")


def _read(file: Path) -> Any:
    try:
        return msgspec.json.decode(file.read_bytes())
    except OSError as error:
        raise BadPlanFile(f"{file} cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadPlanFile(f"{file} is not JSON: {error}") from None


def _template(found: Any, space: str) -> dict[str, Any]:
    """A plan for the map that a space has now."""
    maps = [each for each in found["maps"] if each["space"] == space]
    if len(maps) != 1:
        what = "is being changed" if maps else "does not exist"
        raise BadOption(f"the space {space} {what}")
    return {**maps[0], "assignment": {}, "reasons": []}


def _await_end(client: "httpx.Client", begun: dict[str, Any], console: Console) -> dict[str, Any]:
    """Wait until a plan has ended, and tell how far it is; the plan then."""
    told = ""
    while True:
        items = checked(client.get(_PATH)).json()["items"]
        found: dict[str, Any] | None = next((i for i in items if i["id"] == begun["id"]), None)
        if found is None:
            raise PlanAborted(f"the plan for {begun['space']} is gone, or another one has begun")
        if (text := _describe(found)) != told:
            console.print(plain(text), highlight=False)
            told = text
        if not found["running"]:
            return found
        time.sleep(_LOOK_EVERY)


def _describe(found: dict[str, Any]) -> str:
    """How far a plan is, in one line."""
    steps = found["steps"]
    done = sum(step["state"] == "done" for step in steps)
    text = f"{found['space']}: {found['phase']}, {done} of {len(steps)} steps done"
    reasons = [found[name] for name in ("text", "waiting") if found[name]]
    return f"{text}: {'; '.join(reasons)}" if reasons else text


def _print_plan(console: Console, found: dict[str, Any]) -> None:
    console.print(plain(_describe(found)), highlight=False)
    for step in found["steps"]:
        way = f"{', '.join(step['removed'])} -> {', '.join(step['added'])}"
        console.print(plain(f"  {step['state']}: {way}"), highlight=False)
