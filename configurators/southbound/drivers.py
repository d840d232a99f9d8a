"""How a southbound process opens the driver of its data plane."""

import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from hashlib import blake2b
from typing import NamedTuple, Protocol

from configurators.southbound.options import SouthboundOptions
from configurators.streams.addresses import join_address, split_address
from dzflow.errors import BadInput
from sdn.driver import SwitchDriver
from sdn.fence import always
from sdn.network.topology import Topology
from sdn.onos.driver import OnosDriver
from sdn.openflow.driver import DriverOptions, OpenFlowDriver
from sdn.tables.pipeline import Pipeline
from sdn.tables.shadow import PartitionOf


class OpenDriver(NamedTuple):
    """A driver that works, and where switches connect to it (host:port; empty if they do not)."""

    driver: SwitchDriver
    openflow: str


class DriverFactory(Protocol):
    """Opens a driver for a network; `epochs` are in force from the start."""

    def __call__(
        self,
        topology: Topology,
        pipeline: Pipeline,
        partition_of: PartitionOf,
        epochs: dict[str, int],
    ) -> AbstractAsyncContextManager[OpenDriver]:
        """A context in which the driver works."""


def openflow_driver(
    listen: str,
    options: SouthboundOptions,
    token: bytes,
    permits: Callable[[], bool] = always,
) -> DriverFactory:
    """Opens drivers to which switches connect at `listen`; they send while `permits` says yes.

    The key of their probes derives from the `token` that all processes share.
    """
    key = blake2b(token, digest_size=32, person=b"dzflow probes").digest()
    host, port = split_address(listen)

    @contextlib.asynccontextmanager
    async def open_driver(
        topology: Topology,
        pipeline: Pipeline,
        partition_of: PartitionOf,
        epochs: dict[str, int],
    ) -> AsyncIterator[OpenDriver]:
        settings = DriverOptions(
            host=host,
            port=port,
            tls=_tls(options),
            admission=options.admission,
            role=options.role,
            timeout=options.timeout,
            echo_every=options.echo_every,
            audit_every=options.audit_every,
            window=options.window,
            queue=options.queue,
            rate=options.rate,
            discover=options.discover,
            learn_hosts=options.learn_hosts,
            discovery_key=key,
        )
        given = topology, pipeline, partition_of, epochs, settings
        async with OpenFlowDriver(*given, permits=permits) as driver:
            yield OpenDriver(driver, join_address(host, driver.port))

    return open_driver


def onos_driver(options: SouthboundOptions) -> DriverFactory:
    """Opens drivers that reach all switches through an ONOS; BadInput if its address is missing."""
    access = options.onos
    if access is None:
        raise BadInput("say where ONOS is: the data plane onos needs its address")

    @contextlib.asynccontextmanager
    async def open_driver(
        topology: Topology,
        pipeline: Pipeline,
        partition_of: PartitionOf,
        epochs: dict[str, int],
    ) -> AsyncIterator[OpenDriver]:
        given = topology, pipeline, partition_of, epochs
        async with OnosDriver(*given, access, options.onos_options) as driver:
            yield OpenDriver(driver, "")

    return open_driver


def _tls(options: SouthboundOptions) -> ssl.SSLContext | None:
    if not options.cert:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=options.ca)
    context.load_cert_chain(options.cert, options.key)
    context.verify_mode = ssl.CERT_REQUIRED
    return context
