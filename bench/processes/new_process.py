"""Runs measurements in a new process without threads, whatever the caller has started.

Unlike a forked process it shares no memory with the caller, so it may fork (`forked.py`): a process
that is forked while another thread holds a lock can wait for that lock forever.
"""

import signal
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Concatenate, ParamSpec

from bench.processes.forked import MeasurementFailed
from bench.report import Progress, Row

P = ParamSpec("P")

Measure = Callable[Concatenate[Progress, P], list[Row]]
"""A function of a module, which is called with `progress` and values that can be pickled."""


def run_in_new_process(
    progress: Progress, measure: Measure[P], *given: P.args, **more: P.kwargs
) -> list[Row]:
    """The rows that `measure` returns; MeasurementFailed if its process ends without a result."""
    context = get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(sending, measure, given, more), daemon=True)
    process.start()
    sending.close()
    rows: list[Row] | None = None
    try:
        while rows is None:
            found = receiving.recv()
            if isinstance(found, str):
                progress(found)
            else:
                rows = found
    except EOFError as ended:
        process.join()
        text = f"the measurement ended with status {process.exitcode}; see its output above"
        raise MeasurementFailed(text) from ended
    process.join()
    return rows


def _serve(
    sending: Connection, measure: Measure[...], given: tuple[object, ...], more: dict[str, object]
) -> None:
    signal.signal(
        signal.SIGINT, signal.SIG_DFL
    )  # without a message: the caller is interrupted, too
    sending.send(measure(sending.send, *given, **more))
