"""Log lines that a peer can cause again and again."""

import asyncio
import logging

import pytest

from dzflow.process.limited_log import MAX_SUBJECTS, LimitedLog
from tests.support import warnings_of

log = logging.getLogger("limited")


async def test_repeated_messages_become_one_line_with_a_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    said = asyncio.Event()

    class Second(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "more like this" in record.getMessage():
                said.set()

    handler = Second()
    log.addHandler(handler)
    try:
        limited = LimitedLog(log, logging.WARNING, every=0.05)
        for number in range(1_000):
            limited.add("peer", f"message {number}")
        assert warnings_of(caplog, log.name) == ["message 0"]
        async with asyncio.timeout(20):
            await said.wait()
    finally:
        log.removeHandler(handler)
    assert len(warnings_of(caplog, log.name)) == 2
    assert warnings_of(caplog, log.name)[1].startswith("message 999 (999 more like this")


async def test_ever_new_subjects_do_not_make_ever_new_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limited = LimitedLog(log, logging.WARNING, every=3600)
    for number in range(10 * MAX_SUBJECTS):
        limited.add(str(number), "again")
    assert len(warnings_of(caplog, log.name)) == MAX_SUBJECTS + 1
