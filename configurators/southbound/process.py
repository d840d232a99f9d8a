"""A southbound process: owns connections to switches, and lets through only who owns a partition.

Before it accepts anything it has read the epochs of all partitions. Several such processes share
the switches: each switch connects to all of them, and those that are registered in etcd agree who
is responsible for which; the switch itself follows the one with the latest generation.
"""

import asyncio
import contextlib
import logging
import os
import random
import ssl
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Literal

from msgspec import Struct

from configurators.southbound.rendezvous import share
from configurators.southbound.request_handler import Desk
from configurators.southbound.sweeper import Sweeper
from configurators.state.network import topology_of
from configurators.state.spaces import Spaces
from configurators.store.documents import (
    BadDocument,
    decode_network,
    decode_process,
    decode_space,
    encode,
)
from configurators.store.etcd.client import Access, Etcd, Page, StoreUnavailable
from configurators.store.following import News, follow, whole
from configurators.store.keys import GENERATION, LOCKS, NETWORK, OWNERS, SOUTHBOUND, SPACES
from configurators.store.locks import LockTable
from configurators.store.model import NetworkDoc, Process
from configurators.store.registration import Superseded as Replaced
from configurators.streams.messages import Holds, ToSouthbound
from configurators.streams.stream import Listener, Stream, StreamClosed, join_address, split_address
from dzflow.errors import BadInput
from sdn.driver import SwitchDriver
from sdn.fence import StaleEpoch
from sdn.network_events import HostSeen, LinkChanged, MastershipLost, NetworkEvent, SwitchUp
from sdn.onos.client import OnosAccess
from sdn.onos.driver import OnosDriver
from sdn.onos.options import OnosOptions
from sdn.openflow.driver import DriverOptions, OpenFlowDriver

log = logging.getLogger(__name__)

RECLAIM, LONGEST_RECLAIM = 1.0, 30.0  # seconds before a switch is claimed back
COUNTED_EVERY = 1.0  # seconds after which changed counters are told
RETRY = 0.5  # seconds before etcd is asked again


class SouthboundOptions(Struct, frozen=True):
    """How a southbound process behaves; all times are in seconds.

    With a certificate, switches connect with TLS, and have to show one that `ca` trusts.
    """

    node: str = ""
    ttl: int = 10  # after which others notice that it is dead
    timeout: float = 10.0  # for any answer of a switch
    echo_every: float = 15.0
    audit_every: float = 300.0
    window: int = 2_000
    queue: int = 1_000
    rate: float | None = None  # flow-mods per second and switch
    discover: bool = False  # probe for links, learn hosts
    cert: str | None = None
    key: str | None = None
    ca: str | None = None
    onos: OnosAccess | None = None
    onos_options: OnosOptions | None = None


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
    ) -> None:
        self.id = id
        self.listen = listen
        self.openflow = openflow if data_plane == "openflow" else ""
        self.ready = asyncio.Event()
        self._access = access
        self._token = token
        self._data_plane = data_plane
        self._options = options or SouthboundOptions()
        if data_plane == "onos" and self._options.onos is None:
            raise BadInput("say where ONOS is: the data plane onos needs its address")
        self._spaces = Spaces()
        self._locks = LockTable()
        self._switches: list[str] = []
        self._network = 0  # the revision that was taken up
        self._alive: set[str] = set()  # the southbound processes that are registered
        self._generation = 0
        self._registered = 0  # the revision under which we were last
        self._replaced = 0  # the one under which another process has our id, if one does
        self._links_down: set[tuple[str, int]] = set()
        self._told: Holds | None = None
        self._reclaiming: asyncio.Task[None] | None = None
        self._patience = RECLAIM
        self._arranging = asyncio.Lock()
        self._pushing = False

    async def run(self, stop: asyncio.Event) -> None:
        """Work until told to stop; Superseded (of processes) if another one takes the id over."""
        async with Etcd(self._access) as etcd:
            self._etcd = etcd
            waiting = asyncio.create_task(self._first_network())
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait([waiting, stopping], return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if not waiting.done():
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)
                return
            doc, revision = waiting.result()
            spaces = await etcd.range(SPACES)
            owners = await etcd.range(OWNERS)
            locks = await etcd.range(LOCKS)
            self._locks.take(whole(locks))
            self._spaces = Spaces(prefix=doc.pipeline.prefix)
            self._sweeper = Sweeper(etcd, self._spaces, lambda: self._desk.switches)
            for item in spaces.items:
                self._take_space(item.key, item.value)
            self._switches = [switch.id for switch in doc.switches]
            epochs = {item.key.removeprefix(OWNERS): item.revision for item in owners.items}
            for partition, claim in self._locks.holders().items():
                epochs[partition] = max(claim.epoch, epochs.get(partition, 0))
            async with self._driver(doc, epochs) as driver:
                self._desk = Desk(driver)
                self._desk.take((), 0)
                self._network = revision
                async with Listener(
                    self.listen,
                    self._token,
                    self._desk.hear,
                    ToSouthbound,
                    name=self.id,
                    on_open=self._opened,
                ) as self._listener:
                    self.listen = self._listener.address
                    await self._serve(stop, spaces, owners, locks)

    async def _serve(self, stop: asyncio.Event, spaces: Page, owners: Page, locks: Page) -> None:
        work: list[Coroutine[Any, Any, Any]] = [
            stop.wait(),
            self._register(),
            self._follow_processes(),
            self._follow_network(),
            self._follow_spaces(spaces.revision),
            self._follow_owners(owners.revision),
            self._follow_locks(locks.revision),
            self._follow_switches(),
            self._count(),
            self._sweeper.run(self._desk.driver),
        ]
        tasks = [asyncio.create_task(one) for one in work]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # whoever failed says why
        finally:
            self.ready.clear()
            if self._reclaiming:
                tasks.append(self._reclaiming)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # The driver

    @contextlib.asynccontextmanager
    async def _driver(self, doc: NetworkDoc, epochs: dict[str, int]) -> AsyncIterator[SwitchDriver]:
        options = self._options
        given = topology_of(doc), doc.pipeline, self._sweeper.partition_of, epochs
        if self._data_plane == "onos":
            assert options.onos
            async with OnosDriver(*given, options.onos, options.onos_options) as onos:
                yield onos
            return
        host, port = split_address(self.openflow)
        settings = DriverOptions(
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
        async with OpenFlowDriver(*given, settings) as driver:
            self.openflow = join_address(host, driver.port)
            yield driver

    # What is stored

    async def _first_network(self) -> tuple[NetworkDoc, int]:
        """The network, as soon as somebody has stored one."""
        async with contextlib.aclosing(follow(self._etcd, NETWORK)) as all_news:
            async for news in all_news:
                for change in reversed(news.changes):
                    if change.key == NETWORK and change.value is not None:
                        return decode_network(change.value), change.revision
        raise AssertionError("following never ends")

    async def _follow_network(self) -> None:
        async for news in follow(self._etcd, NETWORK):
            for change in reversed(news.changes):
                if change.key != NETWORK or change.revision <= self._network:
                    continue
                if change.value is not None:
                    await self._take_network(decode_network(change.value), change.revision)
                break

    async def _take_network(self, doc: NetworkDoc, revision: int) -> None:
        await self._desk.driver.set_network(topology_of(doc), doc.pipeline)
        self._switches = [switch.id for switch in doc.switches]
        self._network = revision
        await self._arrange()

    async def _follow_spaces(self, revision: int) -> None:
        async for news in follow(self._etcd, SPACES, revision):
            before = self._spaces.scopes()
            if news.whole:
                for view in list(self._spaces):
                    self._spaces.drop(view.name)
            for change in news.changes:
                self._take_space(change.key, change.value)
            # What is not in the whole may never have been in this etcd, or was lost with it.
            if not news.whole:
                self._sweeper.changed(before)

    def _take_space(self, key: str, value: bytes | None) -> None:
        name = key.removeprefix(SPACES)
        self._spaces.drop(name)
        if value is not None:
            try:
                self._spaces.put(decode_space(value))
            except BadDocument as error:
                log.error("%s cannot be read, its entries are left alone: %s", key, error)

    async def _follow_owners(self, revision: int) -> None:
        """Raise the fence for new owners: they do so themselves, but may be slow."""
        async for news in follow(self._etcd, OWNERS, revision):
            for change in news.changes:
                if change.value is None:
                    continue
                await self._raise(change.key.removeprefix(OWNERS), change.revision)

    async def _follow_locks(self, revision: int) -> None:
        """The same for who has a lock in mode `sea`."""
        async for news in follow(self._etcd, LOCKS, revision):
            for partition in self._locks.take(news):
                if holder := self._locks.holder(partition):
                    await self._raise(partition, holder.epoch)

    async def _raise(self, partition: str, epoch: int) -> None:
        try:
            await self._desk.driver.raise_epoch(partition, epoch)
        except StaleEpoch:
            log.debug("the fence of %s is above %d already", partition, epoch)

    # Who is responsible for which switch

    async def _register(self) -> None:
        """Be registered, again if the lease was lost; under a new generation each time.

        The first time it replaces whoever has the id.
        """
        while True:
            try:
                async with self._etcd.lease(self._options.ttl) as lease:
                    stored = await self._etcd.get(SOUTHBOUND + self.id)
                    if stored and self._registered:
                        self._note_who(stored.value, stored.revision)
                    self._generation = await self._etcd.put(GENERATION, self.id.encode())
                    process = Process(
                        self.id,
                        self.listen,
                        os.getpid(),
                        self._options.node,
                        self.openflow,
                        self._generation,
                    )
                    self._registered = await self._etcd.put(
                        SOUTHBOUND + self.id, encode(process), lease.id
                    )
                    self._check_replaced()
                    self.ready.set()
                    await lease.lost.wait()
                # Others may have taken our switches and changed them: begin from the beginning.
                log.warning("%s is not registered any more, and will be again", self.id)
                await self._let_go()
            except StoreUnavailable as error:
                log.warning("%s cannot be registered yet: %s", self.id, error)
                await asyncio.sleep(RETRY)

    async def _follow_processes(self) -> None:
        async for news in follow(self._etcd, SOUTHBOUND):
            self._note_processes(news)
            await self._arrange()

    def _note_processes(self, news: News) -> None:
        if news.whole:
            self._alive = set()
        for change in news.changes:
            name = change.key.removeprefix(SOUTHBOUND)
            if change.value is None:
                self._alive.discard(name)
            else:
                self._alive.add(name)
                if name == self.id:
                    self._note_who(change.value, change.revision)

    def _note_who(self, value: bytes, revision: int) -> None:
        """Find out whether somebody has registered under our id since we have."""
        try:
            process = decode_process(value)
        except BadDocument as error:
            log.error("%s%s cannot be read: %s", SOUTHBOUND, self.id, error)
            return
        ours = self.listen, os.getpid(), self._options.node
        if (process.address, process.pid, process.node) != ours:
            self._replaced = max(self._replaced, revision)
            self._check_replaced()

    def _check_replaced(self) -> None:
        if self._replaced > self._registered > 0:
            raise Replaced(f"another process is {SOUTHBOUND}{self.id} now; this one stops")

    async def _arrange(self) -> None:
        """Take up the switches that are ours by now, and let go of the others."""
        async with self._arranging:
            if self.id not in self._alive:
                return  # nobody counts on us; we keep what we have until somebody takes it
            names = self._switches
            if self._data_plane == "onos":  # which knows no masters: one process alone works
                ours = frozenset(names if self.id == min(self._alive) else ())
            else:
                ours = share(names, self._alive, self.id)
            before = self._desk.switches
            if before - ours:
                self._desk.take(before & ours, self._generation)
                self._push()  # at once: what comes back later counts as new
            if ours - before:
                await self._take(ours)
            self._push_soon()

    async def _let_go(self) -> None:
        async with self._arranging:
            self._alive.discard(self.id)
            self._desk.take((), self._generation)
            self._push()

    async def _take(self, switches: frozenset[str]) -> None:
        """Be responsible for more, under a generation above all that were given before."""
        try:
            self._generation = await self._etcd.put(GENERATION, self.id.encode())
        except StoreUnavailable as error:
            log.warning("switches cannot be taken over yet: %s", error)
            self._reclaim_later()
            return
        log.info("%s is responsible for %d switches", self.id, len(switches))
        self._push()  # before: what was lost and is taken back counts as new
        self._desk.take(switches, self._generation)

    def _reclaim_later(self) -> None:
        if self._reclaiming is None or self._reclaiming.done():
            self._reclaiming = asyncio.create_task(self._reclaim())

    async def _reclaim(self) -> None:
        """Claim what is ours but was lost to another process, which may have known it later."""
        await asyncio.sleep(self._patience * random.uniform(0.5, 1.5))  # noqa: S311 - no secret
        self._patience = min(2 * self._patience, LONGEST_RECLAIM)
        self._reclaiming = None
        async with self._arranging:
            if self.id in self._alive:
                await self._take(self._desk.switches)
        await self._arrange()

    # What happens

    async def _follow_switches(self) -> None:
        while True:
            self._happened(await self._desk.driver.events.get())
            self._push_soon()

    def _happened(self, event: NetworkEvent) -> None:
        match event:
            case MastershipLost(switch) if switch in self._desk.switches:
                self._reclaim_later()
            case SwitchUp():
                self._patience = RECLAIM
            case LinkChanged(link, up):
                change = self._links_down.difference_update if up else self._links_down.update
                change(link.ends)
            case HostSeen(host):
                log.info("host %s was seen at switch %s", host.id, host.switch)

    async def _count(self) -> None:
        while True:
            await asyncio.sleep(COUNTED_EVERY)
            if self._told and self._told.operations != self._desk.operations:
                self._push()

    def _opened(self, stream: Stream) -> None:
        self._tell(stream, self._holds())

    def _push_soon(self) -> None:
        if not self._pushing:
            self._pushing = True
            asyncio.get_running_loop().call_soon(self._push)

    def _push(self) -> None:
        self._pushing = False
        holds = self._holds()
        if holds != self._told:
            self._told = holds
            for stream in list(self._listener.streams):
                self._tell(stream, holds)

    def _tell(self, stream: Stream, holds: Holds) -> None:
        try:
            stream.tell(holds)
        except StreamClosed as error:
            log.info("%s", error)

    def _holds(self) -> Holds:
        driver = self._desk.driver
        return Holds(
            self.id,
            sorted(driver.up()),
            driver.down(),
            self._network,
            sorted({*driver.ports_down(), *self._links_down}),
            self._desk.operations,
        )


def _tls(options: SouthboundOptions) -> ssl.SSLContext | None:
    if not options.cert:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=options.ca)
    context.load_cert_chain(options.cert, options.key)
    context.verify_mode = ssl.CERT_REQUIRED
    return context
