"""The `dzflow` command. A subcommand imports the part that it needs when it is called."""

import sys

import typer
from rich.console import Console

from dzflow.cli import bench, certs, etcd, lab, token, trace, up
from dzflow.cli.demo import command as demo_command
from dzflow.cli.service import events, history, hosts, partitions, records, top, views, workers
from dzflow.cli.tables import plain_lines
from dzflow.errors import DzflowError

app = typer.Typer(
    name="dzflow",
    help="Content-based publish/subscribe on OpenFlow switches.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(up.up)
app.command()(up.down)
app.command()(demo_command.demo)
events.add_to(app)
records.add_to(app)
views.add_to(app)
hosts.add_to(app)
app.command()(top.top)
partitions.add_to(app)
history.add_to(app)
workers.add_to(app)
views.etcd.command()(etcd.secure)
app.add_typer(lab.app, name="lab")
app.add_typer(trace.app, name="trace")
app.add_typer(certs.app, name="certs")
app.command("bench")(bench.bench)
app.command("token")(token.token)


@app.callback()
def _root() -> None:
    """Content-based publish/subscribe on OpenFlow switches."""


CONTROL_PLANE = ("api", "bench", "configurators", "dispatcher", "monitor", "sdn", "spark")
"""The packages of the distribution `dzflow-control`."""


def main() -> None:
    """Run the command; an error is printed in one line, and the exit code is 1."""
    try:
        app()
    except DzflowError as error:
        _fail(str(error))
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in CONTROL_PLANE:
            raise
        _fail("this command needs the control plane: pip install dzflow-control")


def _fail(message: str) -> None:
    Console(stderr=True).print(f"[bold red]error:[/] {plain_lines(message)}", highlight=False)
    sys.exit(1)
