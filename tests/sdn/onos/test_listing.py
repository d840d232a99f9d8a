"""Our rules in what ONOS lists; everything else is passed over."""

import asyncio

import msgspec
import pytest

from sdn.driver import SwitchDriver
from sdn.network.topologies import topology
from sdn.onos.client import OnosBroken
from sdn.onos.listing import read
from tests.sdn.onos.support import stage

OURS = {
    "id": "281475012051420",
    "appId": "org.dzflow",
    "state": "ADDED",
    "priority": 100,
    "tableId": 1,
    "selector": {"criteria": []},
    "treatment": {"instructions": [{"type": "OUTPUT", "port": "1"}], "deferred": []},
}


def listed(*flows: dict[str, object]) -> bytes:
    return msgspec.json.encode({"flows": flows})


def test_rules_of_others_may_be_of_any_form() -> None:
    theirs = {
        **OURS,
        "appId": 17,
        "id": -5,
        "tableId": "ingress.acl",
        "selector": {"criteria": [{"type": "PROTOCOL_INDEPENDENT", "port": {"a": []}}]},
        "treatment": [7],
    }
    found = read(listed(theirs, OURS, theirs), "org.dzflow", {})
    assert [held.id for held in found.held.values()] == ["281475012051420"]
    assert found.odd == []


def test_rules_of_ours_that_we_never_write_are_odd() -> None:
    odd = {**OURS, "id": 8, "treatment": {"instructions": [{"type": "METER"}]}}
    found = read(listed(OURS, odd), "org.dzflow", {})
    assert len(found.held) == 1
    assert found.odd == ["8"]


@pytest.mark.parametrize(
    ("state", "listed_at_all", "on_switch"),
    [
        ("PENDING_ADD", True, False),
        ("ADDED", True, True),
        ("PENDING_REMOVE", True, True),
        ("FAILED", True, False),
        ("REMOVED", False, False),
    ],
)
def test_a_rule_is_on_the_switch_from_when_it_is_added_until_it_is_removed(
    state: str, listed_at_all: bool, on_switch: bool
) -> None:
    found = read(listed({**OURS, "state": state}), "org.dzflow", {})
    assert bool(found.held) is listed_at_all
    assert bool(found.on_switch()) is on_switch


def test_a_list_that_is_none_is_onoss_fault() -> None:
    with pytest.raises(OnosBroken):
        read(b'{"flows": [{"id": "1"}]}', "org.dzflow", {})


async def test_whoever_asks_at_the_same_time_shares_an_answer() -> None:
    async with stage(topology("line:2")) as on:
        southbound: SwitchDriver = on.driver
        answers = await asyncio.gather(*(southbound.read("s1") for _ in range(20)))
        assert all(set(answer) == on.expected("s1") for answer in answers)
        assert len(on.onos.requests) == 1
        # But no caller gets an answer to an earlier request.
        on.onos.hold()
        early = asyncio.create_task(southbound.read("s1"))
        await on.until_asked("GET", 2)
        late = [asyncio.create_task(southbound.read("s1")) for _ in range(20)]
        await asyncio.sleep(0)
        on.onos.release()
        await asyncio.gather(early, *late)
        assert len(on.onos.requests) == 3
