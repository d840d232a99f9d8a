"""Runs `dzflow trace` in this process, with the Spark of all tests: another one starts slowly."""

from contextlib import nullcontext

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from dzflow.cli import app
from spark import session as spark_session


def run_trace(spark: SparkSession, *words: object) -> Result:
    """What `dzflow trace` does and prints with this session; errors of a job are raised."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spark_session, "open_session", lambda *_: nullcontext(spark))
        return CliRunner().invoke(app, ["trace", *map(str, words)], catch_exceptions=False)
