"""A southbound process: owns connections to switches, and lets only owners of partitions through.

It reads the epochs of all partitions before it accepts any request. Several southbound processes
share the switches (`responsibility.py`).
"""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from typing import Any, Literal

from configurators.environment import Environment
from configurators.southbound.connection_publisher import ConnectionPublisher
from configurators.southbound.counts import SouthboundCounts
from configurators.southbound.drivers import (
    DriverFactory,
    onos_driver,
    openflow_driver,
)
from configurators.southbound.epochs import EpochFollower
from configurators.southbound.map_leftovers import MapLeftovers
from configurators.southbound.options import SouthboundOptions
from configurators.southbound.reporter import Reporter
from configurators.southbound.request_handler import RequestHandler
from configurators.southbound.responsibility import Responsibility
from configurators.southbound.sweeper import Sweeper
from configurators.southbound.withdrawal import withdraw
from configurators.state.network import read_network, topology_of
from configurators.state.spaces import Spaces, read_space
from configurators.store.documents import BadDocument
from configurators.store.etcd.client import Access, Etcd
from configurators.store.keys import NETWORK, SOUTHBOUND, SPACES, PartitionName
from configurators.store.mirror import KeyChange, Snapshot, follow, follow_key, read_snapshot
from configurators.store.model import NetworkDoc, Process
from configurators.store.registration import Registration
from configurators.streams.addresses import join_address, split_address
from configurators.streams.messages import ToSouthbound
from dzflow.aio import unless_set
from sdn.driver import SwitchDriver
from sdn.fence import always
from sdn.network.events import (
    ConnectionChanged,
    FindingsChanged,
    HostSeen,
    LinkChanged,
    MastershipLost,
    NetworkEvent,
    PortStateChanged,
    SwitchUp,
)

log = logging.getLogger(__name__)


class SouthboundProcess:
    """Serves configurators at `listen`, and switches at `openflow` (or works through an ONOS).

    Both addresses say the real port once `ready` is set.
    """

    def __init__(
        self,
        access: Access,
        token: bytes,
        id: str,
        listen: str,
        openflow: str = "127.0.0.1:6653",
        data_plane: Literal["openflow", "onos"] = "openflow",
        options: SouthboundOptions | None = None,
        *,
        environment: Environment | None = None,
        open_driver: DriverFactory | None = None,
    ) -> None:
        self.id = id
        self.listen = listen
        self.openflow = openflow if data_plane == "openflow" else ""
        self.ready = asyncio.Event()
        self._access = access
        self._token = token
        self._options = options or SouthboundOptions()
        self._environment = environment or Environment()
        self._registered: Registration | None = None
        # Whether switches refuse all southbound processes but the one that claimed them last.
        self._switches_fence = data_plane == "openflow" and self._options.role == "master"
        if open_driver is None:
            given = self._options
            if data_plane == "onos":
                open_driver = onos_driver(given)
            else:
                permits = always if self._switches_fence else self._may_change_switches
                open_driver = openflow_driver(openflow, given, token, permits)
        self._open_driver = open_driver

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, and hand over the switches if there is time for it.

        Superseded if another process registers with the same id.
        """
        async with self._environment.store(self._access) as etcd:
            found = await unless_set(stop, _first_network(etcd))
            if found is None:
                return
            doc, revision = found
            spaces = Spaces(prefix=doc.pipeline.prefix)
            known_spaces = await read_snapshot(etcd, SPACES)
            for change in known_spaces.changes:
                _apply_space(spaces, change)
            epochs = await EpochFollower.read(etcd)
            sweeper = Sweeper(etcd, spaces, self._options.sweep_after)
            opening = self._open_driver(
                topology_of(doc), doc.pipeline, sweeper.partition_of, epochs.current
            )
            async with opening as (driver, self.openflow):
                driver.let_join(doc.discovered)
                clock = self._environment.clock
                counts = SouthboundCounts(self.id, clock.wall)
                reporter = Reporter(
                    self.id, driver, revision, known_spaces.revision, counts, clock.wall
                )
                handler = RequestHandler(
                    driver,
                    spaces.recut,
                    reporter.send,
                    counts,
                    clock,
                    self._environment.tracer,
                )
                handler.set_switches((), 0)
                leftovers = MapLeftovers(driver, reporter, lambda: handler.switches)
                async with self._environment.listener(
                    self.listen,
                    self._token,
                    handler.handle,
                    ToSouthbound,
                    name=self.id,
                    on_open=reporter.add,
                ) as listener:
                    self.listen = listener.address
                    network = _NetworkFollower(etcd, driver, reporter, counts)
                    responsibility = self._responsibility(
                        etcd, driver, handler, reporter, doc, network
                    )
                    registration = self._registration(etcd, responsibility)
                    self._registered = registration
                    await self._serve(
                        self._hand_over_at(stop, responsibility),
                        registration.keep(),
                        self._become_ready(registration),
                        responsibility.run(registration),
                        network.follow(responsibility),
                        _follow_spaces(etcd, spaces, sweeper, driver, reporter, leftovers),
                        epochs.run(driver),
                        _handle_events(driver.events, responsibility, reporter, counts),
                        reporter.run(),
                        reporter.run_findings(),
                        reporter.run_hosts(),
                        sweeper.run(driver, lambda: handler.switches),
                        leftovers.run(),
                    )

    def _responsibility(
        self,
        etcd: Etcd,
        driver: SwitchDriver,
        handler: RequestHandler,
        reporter: Reporter,
        doc: NetworkDoc,
        network: "_NetworkFollower",
    ) -> Responsibility:
        publisher = ConnectionPublisher(
            etcd,
            self.id,
            driver.attached,
            lambda: handler.switches,
            self._environment.clock,
            self._options.stable_after,
            self._options.stable_longest,
        )
        return Responsibility(
            etcd,
            self.id,
            handler,
            reporter,
            publisher,
            _names(doc),
            exclusive=not self._switches_fence,
            know_network=network.wait_for_stored,
        )

    def _may_change_switches(self) -> bool:
        """Whether no other process can be responsible, asked before each message to a switch.

        Without it, a process that wakes up after a long pause would send what it had queued, before
        it notices that it is no longer registered.
        """
        return self._registered is not None and self._registered.certain

    def _registration(self, etcd: Etcd, responsibility: Responsibility) -> Registration:
        options, pid = self._options, self._environment.pid
        process = Process(
            self.id,
            _advertised(self.listen, options.advertise),
            pid,
            options.node,
            _advertised(self.openflow, options.advertise_openflow),
        )
        # Others may claim and change the switches of a process that is not registered.
        on_lost = responsibility.release_all
        return Registration(etcd, SOUTHBOUND + self.id, process, options.ttl, on_lost)

    async def _hand_over_at(self, stop: asyncio.Event, responsibility: Responsibility) -> None:
        await stop.wait()
        if self._options.drain and self.ready.is_set():
            await responsibility.hand_over(self._options.drain)

    async def _become_ready(self, registration: Registration) -> None:
        await registration.known.wait()
        self.ready.set()
        await asyncio.Event().wait()

    async def _serve(self, *work: Coroutine[Any, Any, Any]) -> None:
        """Do all this work at the same time until the first part ends; raises what ended it."""
        tasks = [asyncio.create_task(part) for part in work]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self.ready.clear()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _first_network(etcd: Etcd) -> tuple[NetworkDoc, int]:
    """The network and its revision, as soon as there is one."""
    async with contextlib.aclosing(follow_key(etcd, NETWORK)) as values:
        async for stored in values:
            try:
                return read_network(stored.value), stored.revision
            except BadDocument as error:
                log.error("this process waits for a network that it can use: %s", error)
    raise AssertionError("values of a key come until the caller stops")


class _NetworkFollower:
    """Has the driver take up each network that is stored."""

    def __init__(
        self, etcd: Etcd, driver: SwitchDriver, reporter: Reporter, counts: SouthboundCounts
    ) -> None:
        self._etcd = etcd
        self._driver = driver
        self._reporter = reporter
        self._counts = counts
        self._seen = reporter.network  # the revision up to which everything usable is taken up
        self._changed = asyncio.Event()

    async def follow(self, responsibility: Responsibility) -> None:
        """Take up networks, and share out their switches, until cancelled."""
        async for stored in follow_key(self._etcd, NETWORK, newer_than=self._seen):
            try:
                doc = read_network(stored.value)
            except BadDocument as error:
                log.error("this process goes on with the network that it knows: %s", error)
                self._note(stored.revision)
                continue
            self._driver.let_join(doc.discovered)
            await self._driver.set_network(topology_of(doc), doc.pipeline)
            self._counts.keep(_names(doc))
            self._reporter.network = stored.revision
            self._note(stored.revision)
            responsibility.set_switches(_names(doc))

    async def wait_for_stored(self) -> None:
        """Wait until what is stored now is taken up."""
        stored = await self._etcd.get(NETWORK)
        while stored and self._seen < stored.revision:
            await self._changed.wait()

    def _note(self, revision: int) -> None:
        self._seen = revision
        self._changed.set()
        self._changed = asyncio.Event()


async def _follow_spaces(
    etcd: Etcd,
    spaces: Spaces,
    sweeper: Sweeper,
    driver: SwitchDriver,
    reporter: Reporter,
    leftovers: MapLeftovers,
) -> None:
    async for update in follow(etcd, SPACES, reporter.spaces):
        before, unsettled = spaces.scopes(), spaces.unsettled()
        partitions = {name for view in spaces for name in view.partitions()}
        if isinstance(update, Snapshot):
            for view in list(spaces):
                spaces.drop(view.name)
        for change in update.changes:
            _apply_space(spaces, change)
        # A space that a snapshot lacks was not seen to be deleted: etcd may have lost it.
        if not isinstance(update, Snapshot):
            sweeper.changed(before)
        changed_at = {change.name: change.revision for change in update.changes}
        for name in sorted(partitions):
            if spaces.recut(name):
                # The revision of the map itself: the owner of a partition with the same name may
                # have come after it, and before a snapshot was read.
                space = spaces.numbered(PartitionName.parse(name).space)
                assert space  # it has another map
                revision = changed_at.get(space.name, update.revision)
                await withdraw(etcd, driver, space.name, name, revision)
        reporter.spaces = max(reporter.spaces, update.revision)
        leftovers.spaces_changed(settled=not unsettled <= spaces.unsettled())
        reporter.schedule()


def _apply_space(spaces: Spaces, change: KeyChange) -> None:
    if change.value is None:
        spaces.drop(change.name)
        return
    try:
        spaces.put(read_space(change.name, change.value))
    except BadDocument as error:
        log.error("space %s cannot be read, its entries stay: %s", change.name, error)


async def _handle_events(
    events: "asyncio.Queue[NetworkEvent]",
    responsibility: Responsibility,
    reporter: Reporter,
    counts: SouthboundCounts,
) -> None:
    while True:
        event = await events.get()
        counts.happened(event)
        match event:
            case MastershipLost(switch):
                responsibility.switch_lost(switch)
            case SwitchUp():
                responsibility.switch_came()
            case ConnectionChanged():
                responsibility.connection_changed()
            case LinkChanged(link, up):
                reporter.link_changed(link, up)
                reporter.found()
            case FindingsChanged():
                reporter.found()
            case HostSeen() | PortStateChanged():
                reporter.hosts_changed()
        reporter.schedule()


def _advertised(address: str, host: str) -> str:
    """The address under which others reach this process."""
    return join_address(host, split_address(address)[1]) if host and address else address


def _names(doc: NetworkDoc) -> list[str]:
    return [switch.id for switch in doc.switches]
