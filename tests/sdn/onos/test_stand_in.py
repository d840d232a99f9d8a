"""The ONOS stand-in answers, and refuses, as ONOS does."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import requests

from sdn.network.topologies import topology
from sdn.onos.wire import PENDING_ADD, PENDING_REMOVE
from tests.onos_standin import Behaviour, OnosStandIn, stand_in_process
from tests.sdn.onos.support import network_of
from tests.support import until

DEVICE = "of:0000000000000001"
IPV6 = {"type": "ETH_TYPE", "ethType": "0x86dd"}
APP = "flows?appId=org.someone"


def flow(**changes: Any) -> dict[str, Any]:
    return {
        "priority": 10,
        "timeout": 0,
        "isPermanent": True,
        "deviceId": DEVICE,
        "tableId": 0,
        "treatment": {"instructions": [{"type": "OUTPUT", "port": "2"}], "deferred": []},
        "selector": {"criteria": [IPV6, {"type": "IPV6_DST", "ip": "ff1e::/16"}]},
        **changes,
    }


class Caller:
    """Calls the stand-in from outside, as any HTTP client does."""

    def __init__(self, onos: OnosStandIn) -> None:
        self.onos = onos
        self.user = "onos", "rocks"

    async def __call__(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body)

        def call() -> tuple[int, Any]:
            with requests.Session() as session:
                session.trust_env = False
                answer = session.request(
                    method, f"{self.onos.url}/onos/v1/{path}", data=data, auth=self.user, timeout=20
                )
                content = answer.content
                json_sent = content and answer.status_code != 401
                return answer.status_code, json.loads(content) if json_sent else content

        return await asyncio.to_thread(call)

    async def post(self, **changes: Any) -> tuple[int, Any]:
        return await self("POST", APP, {"flows": [flow(**changes)]})

    async def states(self, device: str = DEVICE) -> list[str]:
        status, found = await self("GET", f"flows/{device}")
        return [rule["state"] for rule in found["flows"]] if status == 200 else []

    async def until_states(self, *expected: str) -> None:
        """Wait until the rules of the first switch have these states."""

        async def reached() -> bool:
            return await self.states() == list(expected)

        await until(reached)


@pytest.fixture
async def call() -> AsyncIterator[Caller]:
    network, _ = network_of(topology("line:2"))
    async with OnosStandIn(network, delay=0.001) as onos:
        yield Caller(onos)


async def test_a_rule_is_answered_with_its_id_and_added_later(call: Caller) -> None:
    call.onos.set_behaviour("s1", Behaviour.STUCK)
    status, answer = await call.post()
    assert status == 200
    [named] = answer["flows"]
    assert await call.states() == [PENDING_ADD]
    call.onos.set_behaviour("s1", Behaviour.NORMAL)
    await call.until_states("ADDED")
    _, found = await call("GET", f"flows/{DEVICE}")
    [rule] = found["flows"]
    assert named == {"deviceId": DEVICE, "flowId": rule["id"]}
    assert rule["appId"] == "org.someone"
    assert rule["selector"] == flow()["selector"]
    assert rule["treatment"] == flow()["treatment"]


async def test_a_rule_is_deleted_by_its_id_and_gone_later(call: Caller) -> None:
    _, answer = await call.post()
    await call.until_states("ADDED")
    call.onos.set_behaviour("s1", Behaviour.STUCK)
    assert await call("DELETE", "flows", answer) == (204, b"")
    assert await call.states() == [PENDING_REMOVE]
    call.onos.set_behaviour("s1", Behaviour.NORMAL)
    await call.until_states()
    # As in ONOS, a device without rules is not told from one that is not there.
    assert (await call("GET", f"flows/{DEVICE}"))[0] == 404
    assert (await call("GET", f"devices/{DEVICE}"))[0] == 200


async def test_the_same_match_and_priority_replace_a_rule(call: Caller) -> None:
    first = await call.post()
    second = await call.post(treatment={"instructions": [{"type": "OUTPUT", "port": 3}]})
    assert first == second
    await call.until_states("ADDED")
    [rule] = call.onos.rules("s1")
    assert rule.shown(0, 0)["treatment"] == {
        "instructions": [{"type": "OUTPUT", "port": "3"}],
        "deferred": [],
    }


async def test_an_application_can_take_all_its_rules_back(call: Caller) -> None:
    await call.post()
    await call("POST", "flows?appId=org.other", {"flows": [flow(priority=11)]})
    await call.until_states("ADDED", "ADDED")
    status, found = await call("GET", "flows/application/org.someone")
    assert (status, len(found["flows"])) == (200, 1)
    assert (await call("DELETE", "flows/application/org.someone"))[0] == 204
    await call.until_states("ADDED")
    assert [rule.app for rule in call.onos.rules("s1")] == ["org.other"]
    assert len((await call("GET", "flows"))[1]["flows"]) == 1


async def test_what_onos_does_not_accept_is_a_bad_request_as_a_whole(call: Caller) -> None:
    def matching(*criteria: dict[str, Any]) -> dict[str, Any]:
        return {"selector": {"criteria": list(criteria)}}

    def doing(*instructions: dict[str, Any]) -> dict[str, Any]:
        return {"treatment": {"instructions": list(instructions)}}

    bad = [
        matching(IPV6, {"type": "IPV6_DST", "ip": "ff1e::/ffff::"}),  # any mask
        matching(IPV6, {"type": "IPV6_DST", "ip": "ff1e::"}),
        matching(IPV6, {"type": "IPV6_DST", "ip": "ff1e::/129"}),
        matching(IPV6, {"type": "IPV6_DST", "ip": "10.0.0.0/8"}),
        matching(IPV6, {"type": "IPV6_DST"}),
        matching({"type": "IPV6_DST", "ip": "ff1e::/16"}),
        matching({"type": "ETH_TYPE", "ethType": "0x800"}),
        matching({"type": "NONSENSE"}),
        matching({"type": "IN_PORT"}),
        doing({"type": "NONSENSE"}),
        doing({"type": "OUTPUT", "port": "x"}),
        doing({"type": "L2MODIFICATION", "subtype": "ETH_DST", "mac": "x"}),
        doing({"type": "L3MODIFICATION", "subtype": "IPV6_DST", "ip": "x"}),
        {"treatment": {"deferred": [{"type": "OUTPUT", "port": "1"}]}},
        {"isPermanent": False, "timeout": None},
        {"priority": 65536},
        {"priority": None},
        {"tableId": "x"},
    ]

    for changes in bad:
        status, answer = await call("POST", APP, {"flows": [flow(priority=1), flow(**changes)]})
        assert status == 400, changes
        assert answer["code"] == 400
        assert answer["message"]
    for body in (b"", b"{", b"[]", b'{"flows": 1}', b'{"flows": [{}]}'):
        assert (await call("POST", APP, body))[0] == 400
        assert (await call("DELETE", "flows", body))[0] == 400
    assert call.onos.rules("s1") == []


async def test_wrong_credentials_and_unknown_things_are_refused(call: Caller) -> None:
    assert (await call("GET", "devices/of:00000000000000ff"))[0] == 404
    assert (await call("GET", "flows/of:00000000000000ff"))[0] == 404
    assert (await call("GET", "nonsense"))[0] == 404
    assert (await call("GET", "../nonsense"))[0] == 404
    # ONOS takes rules for a device that it does not know; nothing comes of them.
    assert (await call.post(deviceId="of:00000000000000ff"))[0] == 200
    assert (await call("GET", "flows"))[1] == {"flows": []}
    call.user = "onos", "wrong"
    assert (await call("GET", "devices"))[0] == 401
    assert (await call.post())[0] == 401
    assert call.onos.rules("s1") == []


async def test_it_fails_on_command(call: Caller) -> None:
    call.onos.fail(503, method="POST")
    assert (await call("GET", "devices"))[0] == 200
    assert (await call.post())[0] == 503
    call.onos.set_behaviour("s1", Behaviour.FORGETFUL)
    assert (await call.post())[0] == 200
    assert await call.states() == []
    call.onos.set_behaviour("s1", Behaviour.FAILING)
    await call.post()
    await call.until_states("FAILED")
    call.onos.set_behaviour("s1", Behaviour.NORMAL)
    await call.post()
    await call.until_states("ADDED")
    assert call.onos.drop_rules("s1") == 1
    assert await call.states() == []
    call.onos.disconnect("s2")
    _, found = await call("GET", "devices")
    assert [device["available"] for device in found["devices"]] == [True, False]


async def test_held_requests_wait_for_their_release_or_the_end(call: Caller) -> None:
    call.onos.hold()
    waiting = asyncio.create_task(call.post())
    await until(lambda: call.onos.requests)
    assert call.onos.rules("s1") == []
    call.onos.release()
    assert (await waiting)[0] == 200
    call.onos.hold()
    lost = asyncio.create_task(call.post())
    await until(lambda: len(call.onos.requests) == 2)
    await call.onos.stop()
    with pytest.raises(requests.ConnectionError):
        await lost


async def test_it_comes_back_where_it_was_with_what_it_had(call: Caller) -> None:
    call.onos.set_behaviour("s1", Behaviour.STUCK)
    await call.post()
    url = call.onos.url
    await call.onos.stop()
    await call.onos.stop()
    call.onos.set_behaviour("s1", Behaviour.NORMAL)
    await call.onos.start()
    assert call.onos.url == url
    await call.until_states("ADDED")


def test_it_runs_in_its_own_process_and_says_where() -> None:
    with stand_in_process("line:2") as running:
        with requests.Session() as session:
            session.trust_env = False
            session.auth = running.user, running.password
            found = session.get(f"{running.url}/onos/v1/devices", timeout=20).json()
        assert [device["id"] for device in found["devices"]] == [DEVICE, "of:0000000000000002"]
        assert running.endpoints.keys() == {"h1", "h2"}
