"""A Spark session for all tests of the jobs."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from spark.session import SparkOptions, SparkUnavailable, check_installation, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL = SparkOptions(
    "local[2]",
    {
        "spark.driver.memory": "1g",
        # The data is small: compiling queries and planning them twice would take most of the time.
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.adaptive.enabled": "false",
    },
)


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    try:
        check_installation()
    except SparkUnavailable as missing:
        pytest.skip(str(missing))
    with open_session(SMALL) as session:
        yield session
