"""A test that leaves connections open fails."""

import asyncio
import socket
from collections.abc import Generator

import pytest

from tests.event_loop import LeftOpen, TestLoop, fail_if_left_open


@pytest.mark.parametrize("closes", [False, True])
def test_a_connection_that_is_open_when_the_loop_ends_is_an_error(closes: bool) -> None:
    async def connect() -> None:
        transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, ours)
        if closes:
            transport.close()

    phase: Generator[None, None, None] = fail_if_left_open()
    next(phase)
    ours, theirs = socket.socketpair()
    with theirs, asyncio.Runner(loop_factory=TestLoop) as runner:
        loop = runner.get_loop()
        runner.run(connect())
    with pytest.raises(StopIteration if closes else LeftOpen):
        phase.send(None)
    assert ours.fileno() == -1
