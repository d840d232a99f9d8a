"""What a southbound process needs from a driver, and how it opens the driver of its data plane."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from configurators.southbound.options import SouthboundOptions
from configurators.streams.addresses import join_address, split_address
from dzflow.errors import BadInput
from sdn.flows import FlowEntry
from sdn.onos.driver import OnosDriver
from sdn.openflow.driver import Driver, Options
from sdn.pipeline import Pipeline
from sdn.southbound import NetworkEvent, Outcome, PartitionOf, Southbound
from sdn.topology import Topology


class SharedDriver(Southbound, Protocol):
    """A driver of switches that several processes may share."""

    events: "asyncio.Queue[NetworkEvent]"

    def take(self, switches: Iterable[str], generation: int) -> None:
        """Be responsible for these switches from now on, and for no others."""

    async def declare(
        self,
        partition: str,
        epoch: int,
        expected: Mapping[str, Iterable[FlowEntry]],
        switches: Iterable[str] | None = None,
    ) -> None:
        """Set what a partition should have on switches, without comparing them."""

    async def check(self, *switches: str) -> dict[str, Outcome]:
        """Compare switches with what they should hold, and repair the difference."""

    def declared(self, switch: str) -> Collection[str]:
        """The partitions that were declared for a switch."""

    def holding(self, switch: str) -> set[str]:
        """The partitions that should have entries on a switch."""

    def up(self) -> set[str]:
        """The switches of this process that hold what they should, and carry out batches."""

    def down(self) -> dict[str, str]:
        """The other switches that this process is responsible for, each with the reason."""

    def ports_down(self) -> list[tuple[str, int]]:
        """The ports of this process's switches that are known to be down."""


class OpenDriver(NamedTuple):
    """A driver that works, and where switches connect to it (host:port; empty if they do not)."""

    driver: SharedDriver
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


def openflow_driver(listen: str, options: SouthboundOptions) -> DriverFactory:
    """Opens drivers to which switches connect at `listen`."""
    host, port = split_address(listen)

    @contextlib.asynccontextmanager
    async def open_driver(
        topology: Topology,
        pipeline: Pipeline,
        partition_of: PartitionOf,
        epochs: dict[str, int],
    ) -> AsyncIterator[OpenDriver]:
        settings = Options(
            host=host,
            port=port,
            tls=_tls(options),
            timeout=options.timeout,
            echo_every=options.echo_every,
            audit_every=options.audit_every,
            window=options.window,
            queue=options.queue,
            rate=options.rate,
            discover=options.discover,
        )
        async with Driver(topology, pipeline, partition_of, epochs, settings) as driver:
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
