"""A control plane with a space in use, whose partition map tests change."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx

from dispatcher.changes.damping import Patience
from tests.etcd import TestEtcd
from tests.rest import subscription
from tests.robustness.state import read_etcd_state, read_tables
from tests.stack import Stack, StackOptions
from tests.support import until_sync

SPACE = "cut"
SCHEMA = {"attributes": [{"name": "price", "type": "int", "min": 0, "max": 1023}]}
PATIENT = Patience(down_after=1e6, absent_after=1e6)


class Plane:
    """A control plane with a space in use."""

    def __init__(self, stack: Stack, client: httpx.Client) -> None:
        self.stack = stack
        self.client = client

    def map(self) -> dict[str, Any]:
        (found,) = [m for m in self.client.get("/partitions").json()["maps"] if m["space"] == SPACE]
        assert isinstance(found, dict)
        return found

    def body(self, root: object, **more: object) -> dict[str, Any]:
        """A plan from the present map to another one."""
        return {**self.map(), "map": {"plan": "legs", "root": root}, **more}

    def plan(self) -> dict[str, Any]:
        (found,) = self.client.get("/partitions/plan").json()["items"]
        assert isinstance(found, dict)
        return found

    def ended(self) -> dict[str, Any]:
        until_sync(lambda: not self.plan()["running"])
        return self.plan()

    def leaves(self) -> dict[str, Any]:
        items = self.client.get("/partitions").json()["items"]
        return {item["leaf"]: item for item in items if item["space"] == SPACE}

    def check_tables(self) -> None:
        """Switches come to hold what follows from the records and the map: no more, no less."""

        async def read() -> tuple[Any, Any]:
            state = await read_etcd_state(self.stack.access)
            async with httpx.AsyncClient(base_url=self.stack.url, timeout=60) as client:
                return state.rebuilt(), await read_tables(client, ("s1", "s2", "s3"))

        def agree() -> bool:
            try:
                expected, found = asyncio.run(read())
            except httpx.HTTPStatusError as error:
                if error.response.status_code != 503:
                    raise
                return False  # a switch is about to come back
            return bool(found == expected)

        with suppress(TimeoutError):
            until_sync(agree)
        expected, found = asyncio.run(read())
        assert found == expected

    def on_loop(self, call: Callable[[], object]) -> None:
        async def work() -> None:
            call()

        self.stack.run(work())

    @contextmanager
    def switch_away(self, name: str) -> Iterator[None]:
        """A switch is not connected, and goes on forwarding."""
        agent = self.stack.network.agents[name]
        self.on_loop(agent.drop)
        try:
            yield
        finally:
            self.on_loop(agent.come_back)


@contextmanager
def load(url: str) -> Iterator[list[str]]:
    """Subscriptions come and go all the time; what went wrong."""
    wrong: list[str] = []
    stopping = threading.Event()

    def work(host: str) -> None:
        with httpx.Client(base_url=url, timeout=60) as client:
            low = 0
            while not stopping.is_set():
                low = (low + 37) % 1000
                body = {"host": host, "space": SPACE, "filter": {"price": {"gte": low}}}
                made = client.post("/subscribe", json=body)
                if made.status_code != 201:
                    wrong.append(made.text)
                    continue
                ended = client.post("/unsubscribe", json={"id": made.json()["id"]})
                if ended.status_code != 200:
                    wrong.append(ended.text)

    threads = [threading.Thread(target=work, args=(host,)) for host in ("h2", "h3")]
    for thread in threads:
        thread.start()
    try:
        yield wrong
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


@contextmanager
def running(etcd: TestEtcd, options: StackOptions) -> Iterator[Plane]:
    with (
        Stack(etcd.access(), options) as stack,
        httpx.Client(base_url=stack.url, timeout=60) as client,
    ):
        client.put(f"/spaces/{SPACE}", json=SCHEMA).raise_for_status()
        body = {"host": "h1", "space": SPACE, "filter": {}}
        client.post("/advertise", json=body).raise_for_status()
        wanted = [subscription(SPACE, filter={"price": {"gte": low}}) for low in range(0, 1000, 50)]
        client.post("/subscribe", json=wanted).raise_for_status()
        yield Plane(stack, client)
