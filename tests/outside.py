"""An emulated network that is not the service's own: its switches connect like any others."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sdn.emulator import EmulatedNetwork
from sdn.network.topology import Topology


@contextmanager
def outside_network(network: Topology, *ports: int) -> Iterator[EmulatedNetwork]:
    """Switches that connect to these ports of this machine, on an event loop of their own."""
    loop, stop, started = asyncio.new_event_loop(), asyncio.Event(), threading.Event()
    emulated = EmulatedNetwork(network, [("127.0.0.1", port) for port in ports])

    async def emulate() -> None:
        async with emulated:
            started.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(emulate()))
    thread.start()
    assert started.wait(60)
    try:
        yield emulated
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
