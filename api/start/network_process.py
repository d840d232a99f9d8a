"""The network as a child process: emulated switches and hosts, or the Open vSwitch lab.

Both follow etcd: switches connect to the southbound processes that are registered. In the emulated
network, hosts are added, moved and removed with the `network` key, too.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

from api.start import child
from api.start.parts import common
from api.start.parts.network import lab_service, switch_model
from api.start.probes import answer_probes
from api.start.settings.sections.processes import ProbeSettings
from api.start.settings.settings import Settings
from configurators.gc_tuning import tune_garbage_collector
from configurators.state.network import read_network, topology_of
from configurators.store import keys
from configurators.store.documents import (
    BadDocument,
    decode_network,
    decode_process,
    decode_wires,
    encode,
)
from configurators.store.etcd.client import Etcd, StoreUnavailable
from configurators.store.mirror import Snapshot, follow, follow_key
from configurators.store.model import NetworkDoc
from configurators.streams.addresses import split_address
from dzflow.errors import BadInput, DzflowError
from sdn.emulator import EmulatedNetwork
from sdn.lab import Lab

_log = logging.getLogger(__name__)
_PAUSE = 0.5  # seconds until etcd is tried again after it did not answer


class NoNetwork(DzflowError):
    """No network is stored."""


async def emulate(
    etcd: Etcd, settings: Settings, stop: asyncio.Event, ready: Callable[[EmulatedNetwork], None]
) -> None:
    """Emulate the network that is stored in etcd until `stop` is set."""
    doc = await _network(etcd)
    network = EmulatedNetwork(
        topology_of(doc),
        model=switch_model(settings),
        endpoints=await _former_ports(etcd),
    )

    async def follow_hosts() -> None:
        async for stored in follow_key(etcd, keys.NETWORK):
            try:
                doc = read_network(stored.value)
            except BadDocument as error:
                _log.error("the emulated network stays as it is: %s", error)
                continue
            await network.set_hosts(doc.hosts)
            await _store_wires(etcd, network)

    async def follow_controllers() -> None:
        async for controllers in _controllers(etcd):
            network.set_controllers([split_address(each) for each in controllers])

    async with network, asyncio.TaskGroup() as group:
        await _store_wires(etcd, network)
        follows = [group.create_task(follow_hosts()), group.create_task(follow_controllers())]
        ready(network)
        await stop.wait()
        for task in follows:
            task.cancel()


async def _controllers(etcd: Etcd) -> AsyncIterator[list[str]]:
    """The addresses for switches of all southbound processes, now and after each change.

    While none is registered, switches keep trying the last known ones: nothing is yielded.
    """
    alive: dict[str, str] = {}
    last: list[str] = []
    async for update in follow(etcd, keys.SOUTHBOUND):
        if isinstance(update, Snapshot):
            alive.clear()
        for change in update.changes:
            alive.pop(change.name, None)
            if change.value is not None:
                try:
                    address = decode_process(change.value).openflow
                    split_address(address)
                except (BadDocument, BadInput) as error:
                    _log.error("southbound process %s is ignored: %s", change.name, error)
                else:
                    alive[change.name] = address
        found = sorted(alive.values())
        if found and found != last:
            last = found
            yield found


async def _store_wires(etcd: Etcd, network: EmulatedNetwork) -> None:
    """Store the UDP addresses of the hosts; retried while etcd does not answer."""
    while True:
        try:
            await etcd.put(keys.WIRES, encode(network.endpoints()))
            return
        except StoreUnavailable as error:
            _log.warning("%s", error)
            await asyncio.sleep(_PAUSE)


async def _network(etcd: Etcd) -> NetworkDoc:
    stored = await etcd.get(keys.NETWORK)
    if stored is None:
        raise NoNetwork("no network is stored in etcd; `dzflow up` stores one before it starts it")
    return decode_network(stored.value)


async def _former_ports(etcd: Etcd) -> dict[str, int]:
    """The UDP ports that the hosts had before, so that applications find them again."""
    stored = await etcd.get(keys.WIRES)
    wires = decode_wires(stored.value) if stored else {}
    return {host: port for host, (_, port) in wires.items()}


async def _lab(self: child.Child, etcd: Etcd, stop: asyncio.Event) -> None:
    """Run the lab: real switches that connect to the southbound processes."""
    doc = await _network(etcd)
    await etcd.delete(keys.WIRES)

    async def follow_controllers() -> None:
        async for controllers in _controllers(etcd):
            lab.set_controllers([f"tcp:{address}" for address in controllers])

    with Lab(topology_of(doc), service=lab_service(self.settings)) as lab:
        if self.orders["relay"]:
            lab.relay(self.orders["relay"])
        self.report(ready=True, lab=lab.tag)
        async with asyncio.TaskGroup() as group:
            following = group.create_task(follow_controllers())
            await stop.wait()
            following.cancel()


async def _work(self: child.Child, stop: asyncio.Event) -> None:
    # Beside others, it is not the one to be probed.
    probes = self.settings.probes if self.orders.get("alone") else ProbeSettings()
    async with (
        Etcd(common.access(self.settings)) as etcd,
        answer_probes(probes, lambda: self.ready and not stop.is_set()),
    ):
        if self.settings.data_plane == "ovs":
            await _lab(self, etcd, stop)
        else:
            # There are hundreds of thousands of switch entries, without reference cycles: with
            # the default thresholds, garbage collection took a quarter of the time.
            tune_garbage_collector()
            await emulate(etcd, self.settings, stop, lambda _: self.report(ready=True))


if __name__ == "__main__":
    child.run(_work)
