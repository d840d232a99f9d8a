"""The history of a running control plane, over REST, in the stream and by the command."""

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest

from configurators.process import ConfiguratorOptions, ConfiguratorProcess
from tests.command import run_dzflow
from tests.etcd import TestEtcd
from tests.rest import SCHEMA
from tests.stack import TOKEN, Stack, StackOptions
from tests.support import until, until_sync

SECOND = "configurator-9"


@pytest.fixture(scope="module")
def stack(etcd_server: TestEtcd) -> Iterator[Stack]:
    with Stack(etcd_server.access(), StackOptions(partitions=3)) as running:
        running.run(running.dispatcher.put_space("stocks", SCHEMA))
        until_sync(lambda: running.dispatcher.catalogue.owners)
        yield running


def history(stack: Stack) -> list[dict[str, Any]]:
    answer = httpx.get(f"{stack.url}/history", timeout=60).raise_for_status().json()
    assert answer["complete"]
    items: list[dict[str, Any]] = answer["items"]
    return items


async def move_and_die(stack: Stack) -> str:
    """A second configurator gets a partition by hand, and dies; the first one takes it over."""
    catalogue, fleet = stack.dispatcher.catalogue, stack.dispatcher.fleet
    options = ConfiguratorOptions(tune_gc=False, load_every_s=0.1)
    second = ConfiguratorProcess(stack.access, TOKEN, SECOND, options=options)
    working = asyncio.create_task(second.run(asyncio.Event()))
    await until(lambda: SECOND in fleet.configurators.processes, 60)
    partition = min(catalogue.owners)
    assert await stack.monitor.moves.move(partition, SECOND, "an operator asked for it")
    working.cancel()
    await asyncio.wait([working])
    await until(lambda: catalogue.owners[partition][0] == "configurator-0", 60)
    return partition


def test_a_move_by_hand_and_a_take_over_are_remembered(stack: Stack) -> None:
    with httpx.stream("GET", f"{stack.url}/stream?types=history", timeout=60) as live:
        lines = live.iter_lines()
        assert next(lines) == ": dzflow"
        partition = stack.run(move_and_die(stack))
        told: list[dict[str, Any]] = []
        for line in lines:
            if line.startswith("data: "):
                event = msgspec.json.decode(line[6:])
                if SECOND in event["workers"]:
                    told.append(event)
                if event["kind"] == "take-over":
                    break
    found = [one for one in history(stack) if SECOND in one["workers"]]
    steps = [(one["kind"], one["action"]) for one in found]
    assert steps == [
        ("configurator", "started"),
        ("move", "began"),
        ("move", "done"),
        ("configurator", "died"),
        ("take-over", "done"),
    ]
    assert told == found
    moved, taken = found[2], found[4]
    assert (moved["partition"], moved["target"], moved["cause"]) == (partition, SECOND, "operator")
    assert moved["reason"] == "an operator asked for it"
    assert moved["seconds"] > 0
    assert (taken["partition"], taken["source"]) == (partition, SECOND)
    assert taken["target"] == "configurator-0"
    later = httpx.get(f"{stack.url}/history?since={taken['at']}", timeout=60).json()
    assert later["items"] == []


def test_the_command_shows_the_history(stack: Stack) -> None:
    table = run_dzflow("history", "--url", stack.url)
    assert "leads" in table.stdout
    lines = run_dzflow("history", "--json", "--url", stack.url).stdout
    assert msgspec.json.decode(lines)["items"] == history(stack)


def test_hosts_do_not_see_the_history(stack: Stack) -> None:
    headers = {"Authorization": f"Bearer {stack.tokens['h1']}"}
    assert httpx.get(f"{stack.guarded_url}/history", headers=headers, timeout=60).status_code == 403
    url = f"{stack.guarded_url}/stream?types=history"
    assert httpx.get(url, headers=headers, timeout=60).status_code == 403


@pytest.mark.parametrize("since", ["soon", "1e12", "nan"])
def test_a_wrong_time_is_refused(stack: Stack, since: str) -> None:
    assert httpx.get(f"{stack.url}/history?since={since}", timeout=60).status_code == 422
