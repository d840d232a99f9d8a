"""Run a measurement in a copy of this process, so that several can start from the same state."""

import json
import os
from collections.abc import Callable
from typing import Any

from dzflow.errors import DzflowError


class MeasurementFailed(DzflowError):
    """The copy of the process ended without a result."""


def forked(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `measure` returns; whatever it changes is gone with the copy."""
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
        raise MeasurementFailed(f"the measurement ended with status {status}; its output is above")
    found: dict[str, Any] = json.loads(text)
    return found
