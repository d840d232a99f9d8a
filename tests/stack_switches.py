"""Emulated switches that a stack knows nothing of, or whose cables it expects elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx

from configurators.streams.addresses import split_address
from sdn.emulator.network import EmulatedNetwork
from sdn.network.topology import Topology
from tests.stack import Stack


@contextmanager
def switches_of(
    stack: Stack,
    topology: Topology,
    prepare: Callable[[EmulatedNetwork], None] = lambda _: None,
) -> Iterator[EmulatedNetwork]:
    """Switches, cabled like this, that connect to the southbound processes of a stack.

    `prepare` changes the network before they do.
    """
    found = httpx.get(f"{stack.url}/southbound", timeout=60).json()["items"]
    network = EmulatedNetwork(topology, [split_address(one["openflow"]) for one in found])
    prepare(network)
    stack.run(network.__aenter__())
    try:
        yield network
    finally:
        stack.run(network.__aexit__(None, None, None))
