"""Partitions are split, merged and moved: no event is lost or doubled, and requests go on."""

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.end_to_end.crowd import WAIT, Crowd
from tests.end_to_end.planes import HOSTS, PLANES, Plane
from tests.end_to_end.world import Event, Json, World, make_schema
from tests.partition_maps import draw_map, plan_body
from tests.sdn.lab.support import needs_lab
from tests.service import eventually, flows

MOVES = 100
MAPS = 5  # that the space goes over to meanwhile, one after another
BITS = range(8)  # that the maps test
ROOM = 1_000_000  # numbers for the events of one stream
BATCH = 8


@contextmanager
def requests_coming_and_going(url: str, world: World) -> Iterator[list[Json]]:
    """Subscribe and unsubscribe again and again; yields the records that were removed."""
    stop = threading.Event()
    removed: list[Json] = []

    def work() -> None:
        hosts = itertools.cycle(HOSTS)
        with httpx.Client(base_url=url, timeout=WAIT, trust_env=False) as rest:
            while not stop.is_set():
                bodies = [
                    {
                        "host": next(hosts),
                        "space": world.name,
                        "filter": world.filter(),
                        "wait": 50,
                    }
                    for _ in range(BATCH)
                ]
                made = _ended(rest.post("/subscribe", json=bodies), 201)
                ids = [{"id": record["id"], "wait": 50} for record in made]
                gone = rest.post("/unsubscribe", json=ids)
                removed.extend(_ended(gone, 200))

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work)
        try:
            yield removed
        finally:
            stop.set()
        working.result(WAIT)


def _ended(answer: httpx.Response, status: int) -> list[Json]:
    records: list[Json] = answer.raise_for_status().json()
    assert {record["status"] for record in records} == {status}, records
    return records


def move_partitions(rest: httpx.Client, count: int) -> set[str]:
    """Move one partition after another, there and back; the partitions that have moved."""

    def both() -> list[str] | None:
        found = [each["id"] for each in rest.get("/configurators").json()["items"]]
        return found if len(found) == 2 else None

    # A configurator that has no processor time for long counts as dead, until it has some; a move
    # fails then.
    first, second = eventually(both, "both configurators are there")
    moved: list[str] = []
    for n in range(count + count // 2 + 1):
        items = rest.get("/partitions").json()["items"]
        partition = items[n % len(items)]
        to = second if partition["configurator"] == first else first
        path = f"/partitions/{quote(partition['id'], safe='')}/migrate"
        answer = rest.post(path, json={"to": to, "wait": 50})
        assert answer.status_code in (200, 409), answer.text
        if answer.status_code == 200:
            moved.append(partition["id"])
        if len(moved) == count:
            break
    assert len(moved) == count, moved
    return set(moved)


def cut_partitions(rest: httpx.Client, random: Random) -> int:
    """Go over to another partition map; the number of its steps."""
    (present,) = rest.get("/partitions").json()["maps"]
    wanted = draw_map(random, present["map"]["plan"], BITS)
    begun = rest.post("/partitions/plan", json=plan_body(present, wanted, {}))
    assert begun.status_code == 202, begun.text

    def ended() -> bool:
        (plan,) = rest.get("/partitions/plan").json()["items"]
        assert plan["phase"] != "aborted", plan
        return not plan["running"]

    eventually(ended, "the plan is carried out")
    names = {each["leaf"] for each in rest.get("/partitions").json()["items"]}
    assert names == set(wanted.leaves())
    return len(begun.json()["steps"])


class Events:
    """Hosts that publish and subscribe all the time."""

    def __init__(self, crowd: Crowd, world: World) -> None:
        self._crowd = crowd
        self._world = world
        self._wanted: list[tuple[str, str, Json]] = []  # host, name, filter

    def begin(self) -> None:
        """Subscribe everywhere to everything, and to less; advertise, and publish."""
        world = self._world
        for host in HOSTS:
            for n, source in enumerate(({}, world.filter(), world.filter())):
                name = f"keep-{n}"
                self._crowd[host].do("subscribe", name=name, space=world.name, filter=source)
                self._wanted.append((host, name, source))
        for host in HOSTS[:3]:
            self._crowd[host].do("advertise", name="all", space=world.name, filter={})

    def flow(self) -> None:
        for host in HOSTS[:3]:
            first = self._world.base(ROOM)
            events = [{**self._world.event(), "n": first} for _ in range(50)]
            self._crowd[host].do("stream", name="all", events=events)

    def check(self) -> int:
        """Stop; each subscription has got each event that matches it, once. How many were sent."""
        sent: list[Event] = []
        for host in HOSTS[:3]:
            sent += self._crowd[host].do("halt", name="all")
        for host, name, source in self._wanted:
            wanted = self._world.parsed(source)
            expected = sorted(e["n"] for e in sent if self._world.matches(wanted, e))
            application = self._crowd[host]
            got = application.do("take", name=name, count=len(expected), timeout=20.0)
            got += application.do("take", name=name, count=10**9, timeout=0)
            assert sorted(event["n"] for event in got) == expected, (host, name, source)
        for host in HOSTS:
            counters: dict[str, Any] = self._crowd[host].do("counters", space=self._world.name)
            assert (counters["doubles"], counters["malformed"]) == (0, 0), host
        return len(sent)


@pytest.mark.parametrize("name", ["emulated", pytest.param("ovs", marks=needs_lab)])
def test_events_flow_all_the_time_while_partitions_are_split_merged_and_moved(
    name: str, tmp_path: Path
) -> None:
    with events_flow(name, tmp_path) as rest:
        moved = move_partitions(rest, MOVES // 2)
        assert len(moved) == len(rest.get("/partitions").json()["items"])
        random, steps = Random(13), 0
        for _ in range(MAPS):
            steps += cut_partitions(rest, random)
            move_partitions(rest, MOVES // 2 // MAPS)
        assert steps > MAPS // 2


def test_events_flow_all_the_time_while_partitions_are_cut_in_mode_sea(tmp_path: Path) -> None:
    with events_flow("shared", tmp_path) as rest:
        random = Random(14)
        assert sum(cut_partitions(rest, random) for _ in range(MAPS)) > MAPS // 2


@contextmanager
def events_flow(name: str, folder: Path) -> Iterator[httpx.Client]:
    """Hosts publish and subscribe meanwhile; at the end nothing is missing, doubled or left."""
    random = Random(11)
    world = World("one", make_schema(random, "legs"), random)
    with PLANES[name](folder, "legs") as plane, plane.rest as rest:
        rest.put(f"/spaces/{world.name}", json=world.schema).raise_for_status()
        events = Events(plane.crowd, world)
        events.begin()
        plane.settled()
        url = str(rest.base_url)
        events.flow()
        with requests_coming_and_going(url, World("one", world.schema, Random(12))) as removed:
            yield rest
        assert removed, "requests went on meanwhile"
        assert events.check()
        check_tables(plane, url)


def check_tables(plane: Plane, url: str) -> None:
    """Switches hold what the control plane believes."""
    plane.settled()
    assert flows(url, "dp") == flows(url, "cp")
