"""`dzflow trace ingest`: take new trace files into a history, for reports on a long time."""

from typing import Annotated

import typer
from rich.console import Console

from dzflow.cli.tables import plain
from dzflow.cli.trace import Master, Setting, Traces, print_left_out, spark_options, start_spark


def add_to(app: typer.Typer) -> None:
    """Add the command to `dzflow trace`."""
    app.command()(ingest)


def ingest(
    path: Traces,
    state: Annotated[
        str, typer.Option(metavar="FOLDER", help="The folder of the history; made if need be.")
    ],
    master: Master = "local[*]",
    setting: Setting = None,
) -> None:
    """Take the trace files in that came since the last run: each of them once."""
    options = spark_options(master, setting or [])
    console = Console()
    with start_spark(options, "ingest") as session:
        from spark.history.ingest import ingest as take_in

        found = take_in(session, path, state)
    print_left_out(console, found.skipped, ())
    if found.files:
        text = f"took in {found.rows:,} rows in {found.files:,} files into {state}"
    else:
        text = f"there are no new files: {state} is as it was"
    console.print(plain(text), highlight=False)
