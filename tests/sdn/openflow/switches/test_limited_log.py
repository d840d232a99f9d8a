"""Log lines that a peer can cause again and again."""

import asyncio
import logging

import pytest

from sdn.openflow.switches.limited_log import MAX_SUBJECTS, LimitedLog

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
        assert caplog.messages == ["message 0"]
        async with asyncio.timeout(20):
            await said.wait()
    finally:
        log.removeHandler(handler)
    assert len(caplog.messages) == 2
    assert caplog.messages[1].startswith("message 999 (999 more like this")


async def test_ever_new_subjects_do_not_make_ever_new_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limited = LimitedLog(log, logging.WARNING, every=3600)
    for number in range(10 * MAX_SUBJECTS):
        limited.add(str(number), "again")
    assert len(caplog.messages) == MAX_SUBJECTS + 1
