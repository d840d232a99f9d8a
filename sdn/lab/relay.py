"""A port of this machine that answers inside hosts, too: accepted there, passed on out here."""

from __future__ import annotations

import asyncio
import socket as sockets
import struct
import threading
from collections.abc import Sequence
from contextlib import suppress

from sdn.lab.errors import LabError
from sdn.lab.run import TIMEOUT

LOOPBACK = "127.0.0.1"
MAX_CONNECTIONS = 128
"""How many connections one host may have open through a relay; more wait to be accepted."""

_CONNECT_TIMEOUT = 5.0
_CHUNK = 1 << 16
# Closing then tells the peer that something went wrong, instead of a regular end.
_RESET = struct.pack("ii", 1, 0)


class Relay:
    """Passes connections of listening sockets on to a port of this machine, in its own thread.

    It owns the listeners. `close()` ends all connections.
    """

    def __init__(self, listeners: Sequence[sockets.socket], port: int) -> None:
        self._listeners = listeners
        self._target = (LOOPBACK, port)
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, name=f"relay {port}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End all connections, close the listeners and end the thread."""
        with suppress(RuntimeError):  # closed before
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(TIMEOUT)
        if self._thread.is_alive():
            raise LabError(f"{self._thread.name} does not end")

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._accept(each, group)) for each in self._listeners]
                await self._stop.wait()
                for task in (*tasks, *self._connections):
                    task.cancel()
        finally:
            for listener in self._listeners:
                listener.close()

    async def _accept(self, listener: sockets.socket, group: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        room = asyncio.Semaphore(MAX_CONNECTIONS)

        def forget(task: asyncio.Task[None]) -> None:
            self._connections.discard(task)
            room.release()

        while True:
            await room.acquire()
            try:
                inside, _ = await loop.sock_accept(listener)
            except OSError:
                # The peer has gone already, or this process is out of files for the moment.
                room.release()
                await asyncio.sleep(0.1)
                continue
            task = group.create_task(self._pass_on(inside))
            self._connections.add(task)
            task.add_done_callback(forget)

    async def _pass_on(self, inside: sockets.socket) -> None:
        outside = sockets.socket(sockets.AF_INET, sockets.SOCK_STREAM)
        with inside, outside:
            outside.setblocking(False)
            try:
                async with asyncio.timeout(_CONNECT_TIMEOUT):
                    await asyncio.get_running_loop().sock_connect(outside, self._target)
                async with asyncio.TaskGroup() as both_ways:
                    both_ways.create_task(_pump(inside, outside))
                    both_ways.create_task(_pump(outside, inside))
            except* OSError:  # of which TimeoutError is one
                for end in (inside, outside):
                    end.setsockopt(sockets.SOL_SOCKET, sockets.SO_LINGER, _RESET)


async def _pump(source: sockets.socket, sink: sockets.socket) -> None:
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(source, _CHUNK):
        await loop.sock_sendall(sink, data)
    # The end of one direction is passed on; the other may still have much to say.
    sink.shutdown(sockets.SHUT_WR)
