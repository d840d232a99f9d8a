"""`dzflow trace`: what request traces say, by Spark jobs."""

import typer

from dzflow.cli.trace import ingest, rebalance, replay, report, shapes

app = typer.Typer(help="Analyse request traces with Spark.", no_args_is_help=True)
app.command()(report.report)
app.command()(rebalance.rebalance)
app.command()(replay.replay)
app.command()(ingest.ingest)
app.command()(shapes.shapes)
