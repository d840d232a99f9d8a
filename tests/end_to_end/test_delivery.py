"""The whole service, from REST to sockets: each host gets the matching events, and no others."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import Random
from typing import Any

import pytest

from configurators.state.network import Network
from configurators.store import keys
from configurators.store.documents import decode_network, decode_space
from configurators.store.etcd.client import Etcd
from dzflow.address import Scope
from sdn.tables.flows import FlowEntry, Output
from sdn.tables.pipeline import PlanName
from tests.end_to_end.crowd import WAIT, Application
from tests.end_to_end.planes import HOSTS, PLANES, Plane
from tests.end_to_end.world import Event, Json, World, make_schema, requests
from tests.oracle import expected_entries, receivers
from tests.sdn.lab.support import needs_lab
from tests.service import eventually

ROUNDS = 2
ROOM = 1_000_000  # numbers for the events of one stream

Row = tuple[int, int, str | None, int | None, tuple[str, ...], int | None]


class Scenario:
    """Hosts that subscribe, change their minds and publish, all at once."""

    def __init__(self, plane: Plane, plan: PlanName, seed: int) -> None:
        self.plane = plane
        self.plan: PlanName = plan
        self.random = Random(seed)
        self.worlds = [
            World(name, make_schema(self.random, plan), self.random) for name in ("one", "two")
        ]
        self.wanted: dict[tuple[str, str], tuple[World, Json]] = {}  # by host and name
        self.offered: dict[tuple[str, str], Json] = {}  # by host and space
        self.taken: dict[tuple[str, str], list[Event]] = {}
        self._names = 0

    def run(self) -> None:
        for world in self.worlds:
            put = self.plane.rest.put(f"/spaces/{world.name}", json=world.schema)
            assert put.status_code == 201, put.text
        self._each(self._begin)
        for _ in range(ROUNDS):
            self._change_under_traffic()
            self._publish_to_all()
            self._check_tables()
        self._smuggle()

    def _each(self, work: Callable[[Application, list[Any]], None]) -> None:
        """Have all hosts do something at the same time, what it is decided beforehand."""
        plans = {host: self._plan(host) for host in HOSTS}
        crowd = self.plane.crowd
        crowd.together([partial(work, crowd[host], plans[host]) for host in HOSTS])
        self.plane.settled()

    def _plan(self, host: str) -> list[Any]:
        """What a host will do next: advertise, subscribe, update, close."""
        steps: list[Any] = []
        for world in self.worlds:
            if (host, world.name) not in self.offered:
                offer = self.random.choice(({}, world.filter()))
                self.offered[host, world.name] = offer
                steps.append(("advertise", f"a-{world.name}", world, offer))
                keep = world.filter()
                self.wanted[host, f"keep-{world.name}"] = (world, keep)
                steps.append(("subscribe", f"keep-{world.name}", world, keep))
            self._names += 1
            name, source = f"s{self._names}", world.filter()
            self.wanted[host, name] = (world, source)
            steps.append(("subscribe", name, world, source))
        mine = [n for h, n in self.wanted if h == host and n.startswith("s")]
        if len(mine) > 3:
            changed, closed = self.random.sample(mine, 2)
            world = self.wanted[host, changed][0]
            new = world.filter()
            self.wanted[host, changed] = (world, new)
            steps.append(("update", changed, world, new))
            del self.wanted[host, closed]
            steps.append(("close", closed, None, None))
        return steps

    @staticmethod
    def _begin(application: Application, steps: list[Any]) -> None:
        for what, name, world, source in steps:
            match what:
                case "update":
                    application.do("update", name=name, filter=source)
                case "close":
                    application.do("close", name=name)
                case _:
                    application.do(what, name=name, space=world.name, filter=source)

    # Events

    def _change_under_traffic(self) -> None:
        """Requests come and go while events flow; lasting subscriptions miss nothing."""
        crowd = self.plane.crowd
        streams = []
        for host in HOSTS:
            for world in self.worlds:
                events = world.events(20, self.offered[host, world.name])
                if events:
                    first = world.base(ROOM)
                    events = [{**event, "n": first} for event in events]
                    crowd[host].do("stream", name=f"a-{world.name}", events=events)
                    streams.append((host, world))
        self._each(self._begin)
        sent = [
            (world, event)
            for host, world in streams
            for event in crowd[host].do("halt", name=f"a-{world.name}")
        ]
        assert sent
        for (host, name), (world, source) in self.wanted.items():
            if name.startswith("keep"):
                self._check_got(host, name, world, source, sent)
        # The events of the other subscriptions depend on when these were changed.
        for host, name in self.wanted:
            if not name.startswith("keep"):
                crowd[host].do("take", name=name, count=10**9, timeout=0)

    def _check_got(
        self, host: str, name: str, world: World, source: Json, sent: list[tuple[World, Event]]
    ) -> None:
        """What was sent has arrived, once; events of an earlier step may still arrive among it."""
        wanted, here = world.parsed(source), self.plane.crowd[host]
        known = {event["n"] for _, event in sent}
        expected = {e["n"] for w, e in sent if w is world and world.matches(wanted, e)}
        numbers: list[int] = []
        while (missing := len(expected) - len(numbers)) > 0:
            got = here.do("take", name=name, count=missing, timeout=20.0)
            if not got:
                break
            numbers += [event["n"] for event in got if event["n"] in known]
        got = here.do("take", name=name, count=10**9, timeout=0)
        numbers += [event["n"] for event in got if event["n"] in known]
        assert sorted(numbers) == sorted(expected), (host, name, source)

    def _publish_to_all(self) -> None:
        """Each subscription gets its events, and no host more than its regions let through."""
        crowd = self.plane.crowd
        before = {
            (host, world.name): crowd[host].do("counters", space=world.name)
            for host in HOSTS
            for world in self.worlds
        }
        sent = []
        for host in HOSTS:
            for world in self.worlds:
                events = world.events(15, self.offered[host, world.name])
                crowd[host].do("publish", name=f"a-{world.name}", events=events)
                sent += [(host, world, event) for event in events]
        for (host, name), (world, source) in self.wanted.items():
            self._check_got(host, name, world, source, [(w, e) for _, w, e in sent])
        for host in HOSTS:
            for world in self.worlds:
                self._check_received(host, world, before[host, world.name], sent)

    def _check_received(
        self, host: str, world: World, before: Json, sent: list[tuple[str, World, Event]]
    ) -> None:
        """The network brings an event to a host if it lies in its regions, and only then."""
        shown = self.plane.rest.get(f"/spaces/{world.name}").json()
        index = world.index(shown["version"])
        active = requests(self._records(world.name))
        expected: dict[int, int] = {}  # how often each event comes, by its number
        for publisher, its_world, event in sent:
            if its_world is world:
                point = index.point(world.space.keys(event))
                comes = publisher == host or host in receivers(active, publisher, point)
                expected[event["n"]] = int(comes)

        def all_came() -> Counter[int] | None:
            came = Counter(self.plane.crowd[host].do("arrived", number=shown["number"]))
            return came if all(came[n] >= times for n, times in expected.items()) else None

        # What is unwanted comes last, maybe: no subscription tells when it is there. Some of what
        # was sent before may come even now, and is not counted.
        came = eventually(all_came, f"{host} has got the events of {world.name}")
        assert {n: came[n] for n in expected} == expected
        now: Json = self.plane.crowd[host].do("counters", space=world.name)
        assert now["doubles"] == before["doubles"]
        assert now["malformed"] == 0

    def _smuggle(self) -> None:
        """An event outside of all advertisements reaches no host."""
        crowd, world = self.plane.crowd, self.worlds[0]
        host, other = HOSTS[:2]
        narrow = {"n": {"lt": 10}}
        for application in (crowd[host], crowd[other]):
            application.do("update", name=f"a-{world.name}", filter=narrow)
        crowd[other].do("subscribe", name="all", space=world.name, filter={})
        self.plane.settled()
        outside = {
            **world.event(),
            "n": 1 << 30,
        }  # in the other half, which the one bit tells apart
        crowd[host].do("smuggle", name=f"a-{world.name}", event=outside)
        crowd[host].do("publish", name=f"a-{world.name}", events=[{**outside, "n": 5}])
        got = crowd[other].do("take", name="all", count=1, timeout=20.0)
        assert [event["n"] for event in got] == [5]
        crowd[host].do("close", name=f"a-{world.name}")
        crowd[host].do("advertise", name="again", space=world.name, filter=narrow)
        self.plane.settled()
        crowd[host].do("publish", name="again", events=[{**outside, "n": 6}])
        got = crowd[other].do("take", name="all", count=1, timeout=20.0)
        assert [event["n"] for event in got] == [6]

    # Tables

    def _records(self, space: str) -> list[Json]:
        found = []
        for kind in ("subscriptions", "advertisements"):
            page = self.plane.rest.get(f"/{kind}", params={"space": space, "limit": 1000}).json()
            assert page["next"] is None
            assert {record["state"] for record in page["items"]} == {"active"}
            found += page["items"]
        return found

    def _check_tables(self) -> None:
        """Switches hold what the records that REST shows make them hold: no more, no less."""
        network, docs = asyncio.run(self._stored())
        expected: dict[str, set[Row]] = {
            switch.id: {
                _row(entry) for entry in network.pipeline.base_entries(network.topology, switch.id)
            }
            for switch in network.topology.switches
        }
        for doc in docs:
            (version,) = doc.versions
            entries = expected_entries(
                requests(self._records(doc.name)),
                doc.versions[version].map,
                network.topology,
                network.trees,
                network.pipeline,
                Scope(doc.number, version),
            )
            for switch, found in entries.items():
                expected[switch] |= {_row(entry) for entry in found}
        with ThreadPoolExecutor() as pool:
            read = dict(zip(expected, pool.map(self._read, expected), strict=True))
        for switch, rows in expected.items():
            assert read[switch] == rows, switch

    def _read(self, switch: str) -> set[Row]:
        answer = self.plane.rest.get(f"/switches/{switch}/flows", params={"source": "dp"})
        assert answer.status_code == 200, answer.text
        return {
            (
                flow["table"],
                flow["priority"],
                flow["match"],
                flow["in_port"],
                tuple(sorted(flow["actions"])),
                flow["goto"],
            )
            for flow in answer.json()["items"]
        }

    async def _stored(self) -> tuple[Network, list[Any]]:
        async with Etcd(self.plane.access) as etcd:
            stored = await etcd.get(keys.NETWORK)
            assert stored
            spaces = await etcd.range(keys.SPACES)
        docs = [decode_space(item.value) for item in spaces.items]
        return Network.of(decode_network(stored.value)), docs


def _row(entry: FlowEntry) -> Row:
    actions = [
        f"output:{action.port}" if isinstance(action, Output) else f"group:{action.group:#x}"
        for action in entry.actions
    ]
    match = None if entry.match is None else str(entry.match)
    return (entry.table, entry.priority, match, entry.in_port, tuple(sorted(actions)), entry.goto)


# The first two are also those of the other tests, which find the services of the first one.
PLACES = [
    ("emulated", "legs"),
    pytest.param(("ovs", "legs"), marks=needs_lab),
    ("emulated", "lpm"),
    ("shared", "legs"),
    pytest.param(("ovs", "lpm"), marks=needs_lab),
]


@pytest.fixture(scope="module")
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Plane, PlanName]]:
    """A service with its hosts, and its plan; each test has spaces of its own."""
    name, plan = request.param
    with PLANES[name](tmp_path_factory.mktemp("plane"), plan) as plane, plane.rest:
        yield plane, plan


@pytest.mark.parametrize("place", PLACES, indirect=True, ids="-".join)
def test_hosts_get_exactly_the_matching_events_while_requests_come_and_go(
    place: tuple[Plane, PlanName],
) -> None:
    Scenario(*place, seed=7).run()


@pytest.mark.parametrize("place", PLACES[:2], indirect=True, ids="-".join)
def test_a_space_with_tags_delivers_what_was_advertised_and_nothing_forged(
    place: tuple[Plane, PlanName],
) -> None:
    plane, _ = place
    attributes = [{"name": each, "type": "int", "min": 0, "max": 1000} for each in ("price", "n")]
    schema = {"attributes": attributes, "authentication": "tagged"}
    plane.rest.put("/spaces/stocks", json=schema).raise_for_status()
    publisher, hostile, victim = (plane.crowd[host] for host in ("h1", "h2", "h3"))
    victim.do("subscribe", name="all", space="stocks", filter={})
    publisher.do("advertise", name="a", space="stocks", filter={})
    hostile.do("advertise", name="a", space="stocks", filter="price < 500")
    plane.settled()
    lies = [{"price": 900, "n": 666}, {"price": 901, "n": 666}]
    hostile.do("forge", name="a", events=lies, behind={"price": 400, "n": 1})
    events = [{"price": price, "n": price} for price in (100, 600, 900)]
    publisher.do("publish", name="a", events=events)
    hostile.do("publish", name="a", events=[{"price": 400, "n": 400}])
    got = victim.do("take", name="all", count=4, timeout=WAIT)
    assert sorted(event["n"] for event in got) == [100, 400, 600, 900]
    eventually(
        lambda: victim.do("counters", space="stocks")["outside"] == 2,
        "events outside the advertisement are dropped",
    )
    counters = victim.do("counters", space="stocks")
    assert (counters["untagged"], counters["forged"]) == (2, 2)
    assert counters["delivered"] == 4


@pytest.mark.parametrize("place", PLACES[1:2], indirect=True, ids="-".join)
def test_the_service_does_not_publish_for_hosts_of_a_network_that_is_not_its_own(
    place: tuple[Plane, PlanName],
) -> None:
    rest = place[0].rest
    schema = {"attributes": [{"name": "price", "type": "int", "min": 0, "max": 1000}]}
    rest.put("/spaces/tried", json=schema).raise_for_status()
    rest.post("/advertise", json={"host": "h1", "space": "tried", "filter": {}}).raise_for_status()
    refused = rest.post("/publish", json={"host": "h1", "space": "tried", "event": {"price": 5}})
    assert refused.status_code == 409
    assert "publish on the host" in refused.json()["detail"]
    assert rest.get("/about").json()["lab"] is False
