"""Runs measurements in forked processes, so that several can start from the same state."""

import json
import os
from collections.abc import Callable

from bench.report import Row
from dzflow.errors import DzflowError


class MeasurementFailed(DzflowError):
    """The forked process ended without a result."""


def run_forked(measure: Callable[[], list[Row]]) -> list[Row]:
    """The rows that `measure` returns. Its changes to memory end with the forked process."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(readable)
            with os.fdopen(writable, "w") as out:
                json.dump(measure(), out)
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writable)
    with os.fdopen(readable) as result:
        text = result.read()
    _, status = os.waitpid(child, 0)
    if status != 0:
        raise MeasurementFailed(f"the measurement ended with status {status}; see its output above")
    rows: list[Row] = json.loads(text)
    return rows
