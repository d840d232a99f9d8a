"""A Spark session for all tests of the jobs."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from spark.session import SparkOptions, SparkUnavailable, check_installation, open_session
from tests.spark.quick import JAVA, SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL = SparkOptions("local[2]", SETTINGS)


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    try:
        check_installation()
    except SparkUnavailable as missing:
        pytest.skip(str(missing))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in JAVA.items():
            patch.setenv(name, value)
        with open_session(SMALL) as session:
            yield session
