"""`dzflow trace ingest`: take new trace files into a history, for reports on a long time."""

from typing import Annotated

import typer
from rich.console import Console

from dzflow.cli.option_groups import with_option_groups
from dzflow.cli.tables import plain
from dzflow.cli.trace.options import SparkChoice, Traces
from dzflow.cli.trace.results import print_left_out
from dzflow.cli.trace.session import start_spark


@with_option_groups
def ingest(
    *,
    path: Traces,
    state: Annotated[
        str, typer.Option(metavar="FOLDER", help="The folder of the history; made if need be.")
    ],
    spark: SparkChoice,
) -> None:
    """Take the trace files in that came since the last run: each of them once."""
    options = spark.options()
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
