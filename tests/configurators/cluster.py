"""Configurators, southbound processes and emulated switches on one loop, with a real etcd."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from msgspec.structs import replace

from configurators.engine.engine import Engine
from configurators.engine.partials import Request
from configurators.environment import Environment
from configurators.ownership.ownership import Mode
from configurators.process import ConfiguratorOptions, ConfiguratorProcess, OwnershipFactory
from configurators.southbound.process import SouthboundProcess
from configurators.state.loading import partials
from configurators.state.network import Network, first_network, with_host
from configurators.state.spaces import LoadedSpace, new_space
from configurators.store import keys
from configurators.store.documents import decode_process, encode
from configurators.store.etcd.client import Access, Etcd
from configurators.store.model import NetworkDoc, Record, RecordKind, SpaceDoc
from configurators.streams.addresses import split_address
from configurators.streams.listener import connect
from configurators.streams.messages import (
    Done,
    Dones,
    FromConfigurator,
    Load,
    Offers,
    Take,
    Task,
    Tasks,
    Waiting,
)
from configurators.streams.packing import pack_regions, unpack_regions
from configurators.streams.stream import Stream, StreamOptions
from configurators.streams.task_numbers import Phase, task_number
from sdn.emulator.model import SOFTWARE, SwitchModel
from sdn.emulator.network import EmulatedNetwork
from sdn.network.topologies import topology
from sdn.network.topology import Host
from sdn.tables.flows import FlowEntry
from sdn.tables.pipeline import PlanName
from tests.configurators.child import ConfiguratorChild, configurator_child
from tests.support import WAIT, running, until

TOKEN = b"a token that the processes of a test share"
SCHEMA: dict[str, Any] = {
    "attributes": [
        {"name": "x", "type": "int", "min": 0, "max": 255},
        {"name": "y", "type": "int", "min": 0, "max": 255},
    ]
}


QUICK = ConfiguratorOptions(tune_gc=False, load_every_s=0.2)


class Cluster:
    """What runs, and what a dispatcher would see of it."""

    def __init__(
        self, access: Access, etcd: Etcd, doc: NetworkDoc, space: SpaceDoc, mode: Mode
    ) -> None:
        self.access = access
        self.mode: Mode = mode
        self.etcd = etcd
        self.doc = doc
        self.space = LoadedSpace.of(space)
        self.network: EmulatedNetwork
        self.records: dict[str, Record] = {}
        self.dones: dict[tuple[str, str, int], Done] = {}
        self.waiting: list[Waiting] = []
        self.loads: dict[str, Load] = {}
        self.offered: dict[str, list[Task]] = {}
        self.taken: dict[str, Take] = {}
        self.streams: dict[str, Stream] = {}  # to configurators, as a dispatcher has them
        self._heard = asyncio.Condition()

    # Processes

    @asynccontextmanager
    async def southbound(self, id: str = "sb1") -> AsyncIterator[SouthboundProcess]:
        """A southbound process that the switches connect to."""
        process = SouthboundProcess(self.access, TOKEN, id, "127.0.0.1:0", "127.0.0.1:0")
        async with running(process.run):
            async with asyncio.timeout(WAIT):
                await process.ready.wait()
            yield process

    @asynccontextmanager
    async def configurator(
        self,
        id: str = "c1",
        options: ConfiguratorOptions = QUICK,
        environment: Environment | None = None,
        ownership: OwnershipFactory | None = None,
    ) -> AsyncIterator[ConfiguratorProcess]:
        """A configurator, with a stream to it as a dispatcher has one."""
        process = ConfiguratorProcess(
            self.access,
            TOKEN,
            id,
            options=replace(options, mode=self.mode),
            environment=environment,
            ownership=ownership,
        )
        async with running(process.run), self.stream(id, process):
            yield process

    @asynccontextmanager
    async def child(
        self, id: str, options: ConfiguratorOptions = QUICK
    ) -> AsyncIterator[ConfiguratorChild]:
        """A configurator in a child process, with a stream to it as a dispatcher has one."""
        how = replace(options, mode=self.mode)
        with configurator_child(self.access, TOKEN, id, how) as child:
            async with self.stream(id):
                yield child

    @asynccontextmanager
    async def stream(
        self, id: str, process: ConfiguratorProcess | None = None
    ) -> AsyncIterator[Stream]:
        """A stream to a configurator (to this process with the id), as soon as it is registered."""
        address = await self.registered(id, process)
        self.loads.pop(id, None)  # what an earlier process with this id has reported
        # It stays open while the configurator is paused, however long the others take.
        patient = StreamOptions(silence=WAIT)
        stream = await connect(address, TOKEN, self._hear, FromConfigurator, "d1", patient)
        self.streams[id] = stream
        try:
            yield stream
        finally:
            stream.close()
            await stream.closed.wait()

    async def registered(self, id: str, process: ConfiguratorProcess | None = None) -> str:
        """Wait until a configurator (this process with the id) is registered; its address."""
        address = ""

        async def found() -> bool:
            nonlocal address
            stored = await self.etcd.get(keys.CONFIGURATORS + id)
            address = decode_process(stored.value).address if stored else ""
            return bool(address) and (process is None or address == process.address)

        await until(found)
        return address

    async def openflow(self, id: str = "sb1") -> tuple[str, int]:
        """Where a southbound process listens for switches."""
        stored = await self.etcd.get(keys.SOUTHBOUND + id)
        assert stored
        return split_address(decode_process(stored.value).openflow)

    async def _hear(self, stream: Stream, message: FromConfigurator) -> None:
        match message:
            case Take(partition):
                self.taken[partition] = message
                stream.tell(Tasks({partition: self.offered.pop(partition, [])}))
                stream.tell(Offers({partition: 0}))
            case Dones(dones):
                for done in dones:
                    self.dones[done.partition, done.id, done.seq] = done
            case Waiting():
                self.waiting.append(message)
            case Load(configurator):
                self.loads[configurator] = message
        async with self._heard:
            self._heard.notify_all()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition on what configurators have sent holds."""
        async with asyncio.timeout(WAIT), self._heard:
            await self._heard.wait_for(condition)

    async def ready(self, id: str = "c1") -> None:
        """Wait until all partitions of the space are ready at a configurator."""
        names = set(self.space.partitions())
        await self.until(
            lambda: (
                id in self.loads
                and {p.partition for p in self.loads[id].partitions if p.state == "ready"} >= names
            )
        )

    # Requests

    async def own(self, id: str = "c1", names: Iterable[str] | None = None) -> None:
        """Give partitions to a configurator."""
        for name in self.space.partitions() if names is None else names:
            await self.etcd.put(keys.owner_key(name), id.encode())

    def subscribe(self, filter_: str, host: str = "h3") -> Record:
        return self._record("subscription", host, filter_)

    def advertise(self, filter_: str, host: str = "h1") -> Record:
        return self._record("advertisement", host, filter_)

    def again(self, record: Record) -> Record:
        """A record with regions in all versions there are now."""
        regions = {n: pack_regions(r) for n, r in self.space.regions(record.filter).items()}
        return replace(record, regions=regions, seq=record.seq + 1)

    def _record(self, kind: RecordKind, host: str, filter_: str) -> Record:
        regions = {n: pack_regions(found) for n, found in self.space.regions(filter_).items()}
        return Record(
            keys.new_record_id(kind, self.space.number, secrets.token_hex),
            kind,
            host,
            self.space.name,
            filter_,
            regions,
            "active",
            1,
            0.0,
        )

    def tasks(self, records: Iterable[Record], gone: bool = False) -> dict[str, list[Task]]:
        """The tasks that begin (or end) records."""
        found: dict[str, list[Task]] = {}
        for record in records:
            for view in self.space.versions.values():
                regions = unpack_regions(record.regions[view.version])
                advertised = record.kind == "advertisement"
                request = Request(advertised, record.id, record.host, regions)
                for name, partial in view.route(request).items():
                    ends = task_number(record.seq + 1, Phase.SHRINK)
                    task = Task(
                        record.id,
                        ends if gone else task_number(record.seq, Phase.GROW),
                        record.host,
                        advertised,
                        b"" if gone else pack_regions(partial.regions),
                        b"" if gone else pack_regions(partial.edge),
                    )
                    found.setdefault(name, []).append(task)
        return found

    async def do(self, *records: Record, gone: bool = False, id: str = "c1") -> list[Done]:
        """Have records installed (or removed); stored as active (or not) if all went well."""
        tasks = self.tasks(records, gone)
        dones = await self.send(tasks, id)
        failed = {done.id for done in dones if done.outcome != "done"}
        for record in records:
            if record.id in failed:
                continue
            if gone:
                self.records.pop(record.id, None)
                await self.etcd.delete(keys.record_key(record.id))
            else:
                self.records[record.id] = record
                await self.etcd.put(keys.record_key(record.id), encode(record))
        return dones

    async def send(
        self, tasks: dict[str, list[Task]], id: str = "c1", epochs: dict[str, int] | None = None
    ) -> list[Done]:
        """Send tasks to a configurator, and wait for all answers."""
        asked = {(name, task.id, task.seq) for name, some in tasks.items() for task in some}
        for key in asked:
            self.dones.pop(key, None)
        self.streams[id].tell(Tasks(tasks, epochs or {}))
        await self.until(lambda: asked <= self.dones.keys())
        return [self.dones[key] for key in asked]

    async def offer(self, tasks: dict[str, list[Task]], *ids: str) -> list[Done]:
        """Offer tasks to configurators, and wait until they are done."""
        asked = {(name, task.id, task.seq) for name, some in tasks.items() for task in some}
        left = tasks
        while left:
            for key in asked:
                if key in self.dones and self.dones[key].outcome == "moved":
                    del self.dones[key]
            self.offered |= left
            for id in ids:
                self.streams[id].tell(Offers({name: len(some) for name, some in left.items()}))
            await self.until(lambda: asked <= self.dones.keys())
            moved = {key[:2] for key in asked if self.dones[key].outcome == "moved"}
            left = {
                name: again
                for name, some in tasks.items()
                if (again := [task for task in some if (name, task.id) in moved])
            }
        return [self.dones[key] for key in asked]

    # Switches

    def held(self) -> dict[str, set[FlowEntry]]:
        """The entries of the space on each switch, as the switches themselves have them."""
        number = self.space.number
        return {
            name: {
                entry
                for entry in switch.entries()
                if isinstance(entry, FlowEntry)
                and entry.match
                and entry.match.address >> 102 & 0x3FF == number
            }
            for name, switch in self.network.switches.items()
        }

    def expected(self) -> dict[str, set[FlowEntry]]:
        """The same, rebuilt from the records."""
        network = Network.of(self.doc)
        found: dict[str, set[FlowEntry]] = {name: set() for name in self.network.switches}
        engines: dict[str, Engine] = {}
        for view in self.space.versions.values():
            for name, loaded in partials(self.records.values(), [view]):
                if name not in engines:
                    engines[name] = Engine(network.plan(view.scope()))
                engines[name].load([loaded.partial])
        for engine in engines.values():
            for switch, entries in engine.entries().items():
                found[switch].update(entries)
        return found

    def check(self) -> None:
        assert self.held() == self.expected()

    async def until_as_expected(self) -> None:
        """Wait until the switches hold what the records ask for."""
        await until(lambda: self.held() == self.expected())


@asynccontextmanager
async def cluster(
    access: Access,
    shape: str = "line:3",
    plan: PlanName = "legs",
    partitions: int = 3,
    southbounds: int = 1,
    model: SwitchModel = SOFTWARE,
    trees: int = 1,
    mode: Mode = "sna",
    hosts: Iterable[Host] = (),
) -> AsyncIterator[Cluster]:
    """A network (with `hosts` beside those of its shape), its southbound processes, and a space.

    In mode `sna` its partitions are assigned to c1.
    """
    doc = first_network(topology(shape), plan, trees)
    for host in hosts:
        doc = with_host(doc, host)
    space = new_space("small", 5, SCHEMA, plan, partitions)
    async with Etcd(access) as etcd, AsyncExitStack() as stack:
        await etcd.put(keys.NETWORK, encode(doc))
        await etcd.put(keys.SPACES + space.name, encode(space))
        made = Cluster(access, etcd, doc, space, mode)
        if mode == "sna":
            await made.own()
        processes = [
            await stack.enter_async_context(made.southbound(f"sb{n + 1}"))
            for n in range(southbounds)
        ]
        controllers = [split_address(process.openflow) for process in processes]
        made.network = await stack.enter_async_context(
            EmulatedNetwork(topology(shape), controllers, model=model)
        )
        yield made
