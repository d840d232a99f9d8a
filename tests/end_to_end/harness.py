"""The whole control plane with traffic, and with switches and links that tests break."""

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import httpx

from configurators.state.network import tree_of
from configurators.store import keys
from configurators.store.documents import decode_network
from configurators.store.etcd.client import Etcd
from configurators.store.model import NetworkDoc
from dzflow import ControlPlane
from dzflow.sdk import Advertisement, Subscription
from sdn.emulator import EmulatedNetwork
from sdn.network.topology import Link
from sdn.network.trees import Tree
from tests.etcd import TestEtcd
from tests.rest import shown_flows
from tests.stack import Stack, StackOptions
from tests.support import until_sync

WAIT = 60.0
until = partial(until_sync, timeout=WAIT)

SCHEMA: dict[str, Any] = {
    "attributes": [
        {"name": "price", "type": "int", "min": 0, "max": 1023},
        {"name": "n", "type": "int", "min": 0, "max": 1 << 30, "bits": 1},
    ]
}


class Traffic:
    """Publishes numbered events at one price until it is stopped."""

    def __init__(self, advertisement: Advertisement, price: int) -> None:
        self.sent = 0
        self._advertisement = advertisement
        self._price = price
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def more(self, count: int) -> None:
        """Return when so many more events have been sent."""
        goal = self.sent + count
        until(lambda: self.sent >= goal)

    def stop(self) -> int:
        self._stop.set()
        self._thread.join()
        return self.sent

    def _run(self) -> None:
        for n in itertools.count():
            if self._stop.wait(0.002):
                return
            self._advertisement.publish({"price": self._price, "n": n})
            self.sent = n + 1


def numbers(subscription: Subscription, count: int) -> list[int]:
    """The numbers of the next events."""
    return [subscription.get(WAIT)["n"] for _ in range(count)]


def drain(subscription: Subscription, until_number: int) -> list[int]:
    """All numbers up to one that must come."""
    found: list[int] = []
    while not found or found[-1] < until_number:
        found.append(subscription.get(WAIT)["n"])
    return found


@contextmanager
def control_plane(
    etcd_server: TestEtcd, **options: Any
) -> Iterator[tuple[Stack, httpx.Client, Callable[[str], ControlPlane]]]:
    with ExitStack() as opened:
        stack = opened.enter_context(Stack(etcd_server.access(), StackOptions(**options)))
        client = opened.enter_context(httpx.Client(base_url=stack.url, timeout=WAIT))
        client.put("/spaces/stocks", json=SCHEMA).raise_for_status()

        def at(host: str) -> ControlPlane:
            return opened.enter_context(ControlPlane(stack.url, host, timeout=WAIT))

        yield stack, client, at


def begun(client: httpx.Client, host: str, wanted: dict[str, Any]) -> str:
    """The URL of a subscription that is not waited for."""
    ask = {"host": host, "space": "stocks", "filter": wanted, "wait": 0}
    answer = client.post("/subscribe", json=ask)
    assert answer.status_code == 202, answer.text
    return f"/subscriptions/{answer.json()['id']}"


class Network:
    """Breaks and repairs switches and links, and shows what the control plane made of it."""

    def __init__(self, stack: Stack, client: httpx.Client) -> None:
        self._stack = stack
        self._client = client

    @property
    def emulated(self) -> EmulatedNetwork:
        return self._stack.network

    def call(self, work: Callable[[], None]) -> None:
        """Call a function in the thread of the emulated network."""

        async def run() -> None:
            work()

        self._stack.run(run())

    def set_link(self, link: Link, up: bool) -> None:
        self.call(lambda: self.emulated.set_link(link, up))

    def kill(self, switch: str) -> None:
        """Power off: nothing is forwarded, neighbours see their ports go down."""

        def work() -> None:
            for link in self._links(switch):
                self.emulated.set_link(link, False)
            self.emulated.agents[switch].restart(seconds=None)

        self.call(work)

    def revive(self, switch: str) -> None:
        """Power on, with empty tables."""

        def work() -> None:
            for link in self._links(switch):
                self.emulated.set_link(link, True)
            self.emulated.agents[switch].come_back()

        self.call(work)

    def cut_off(self, switch: str) -> None:
        """The switch loses its connection, and goes on with what it holds."""
        self.call(self.emulated.agents[switch].drop)

    def _links(self, switch: str) -> list[Link]:
        return [link for link in self.emulated.topology.links if switch in (link.a, link.b)]

    def stored(self) -> tuple[NetworkDoc, int]:
        """The network as etcd has it, and the revision of its last change."""

        async def read() -> tuple[NetworkDoc, int]:
            async with Etcd(self._stack.access) as etcd:
                found = await etcd.get(keys.NETWORK)
            assert found
            return decode_network(found.value), found.revision

        return self._stack.run(read())

    def trees(self) -> dict[int, Tree]:
        return {number: tree_of(tree) for number, tree in self.stored()[0].trees.items()}

    def used(self) -> list[int]:
        """The numbers of the trees that publishers may use."""
        found: list[int] = self._client.get("/spaces/stocks").json()["trees"]
        return found

    def settled_on(self, so: Callable[[Tree], bool]) -> None:
        """Wait until there is one tree, and it is so."""
        until(
            lambda: len(t := self.trees()) == 1 and self.used() == [*t] and all(map(so, t.values()))
        )

    def check_flows(self) -> None:
        """All switches hold what a rebuild from the records says."""
        for switch in self.emulated.switches:

            def shown(source: str, switch: str = switch) -> list[str]:
                params = {"source": source}
                answer = self._client.get(f"/switches/{switch}/flows", params=params)
                if answer.status_code == 503:  # it does not answer right now, or not in time
                    return [source]
                return shown_flows(answer.raise_for_status().json()["items"])

            until(lambda shown=shown: shown("cp") == shown("dp"))  # type: ignore[misc]

    def check_no_loop(self) -> None:
        assert not any(s.counters.looped for s in self.emulated.switches.values())
