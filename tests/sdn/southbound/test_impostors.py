"""Connections that claim to be a switch, and are not; and switches that come back."""

import asyncio
import ssl
from pathlib import Path

import pytest

from sdn.emulator.agent import Dialling
from sdn.emulator.network import EmulatedNetwork
from sdn.network.events import NetworkEvent, SwitchDown, SwitchUnusable
from sdn.openflow.connections.certificates import dpid_name
from sdn.openflow.connections.claims import RECONNECT_BURST
from sdn.openflow.driver import DriverOptions, OpenFlowDriver
from sdn.openflow.options import Admission
from sdn.openflow.protocol.constants import Type
from sdn.outcomes import Acknowledged
from sdn.tables.pipeline import Pipeline
from tests.certificates import Keys, make_keys, sign
from tests.robustness.proxy import Proxy
from tests.sdn.southbound.raw_peer import RawPeer, claim
from tests.sdn.southbound.support import (
    LINE,
    NAMES,
    WAIT,
    adds,
    all_up,
    drop_events,
    entry,
    next_event,
    rig,
)

HARMLESS = {Type.HELLO, Type.FEATURES_REQUEST, Type.MULTIPART_REQUEST, Type.ECHO_REPLY}


def events(driver: OpenFlowDriver) -> list[NetworkEvent]:
    """All events so far."""
    found = []
    while not driver.events.empty():
        found.append(driver.events.get_nowait())
    return found


async def test_a_connected_switch_is_not_displaced_by_claims_of_its_datapath_id() -> None:
    async with rig(admission=Admission(displace_after=WAIT)) as r:
        drop_events(r.driver)
        for number in range(1, 21):
            assert set(await claim(r.driver.port, 2)) <= HARMLESS
            assert await r.apply("s2", adds(number)) == Acknowledged()
        assert not [event for event in events(r.driver) if isinstance(event, SwitchDown)]
        assert r.driver.up() == set(NAMES)
        await r.agrees("s2", *map(entry, range(1, 21)))


async def test_many_claims_at_the_same_time_are_all_refused() -> None:
    async with rig(admission=Admission(displace_after=WAIT)) as r:
        drop_events(r.driver)
        claims = await asyncio.gather(*(claim(r.driver.port, 2) for _ in range(30)))
        assert all(set(each) <= HARMLESS for each in claims)
        assert r.driver.up() == set(NAMES)
        assert not [event for event in events(r.driver) if isinstance(event, SwitchDown)]


async def test_claims_while_a_switch_is_away_do_not_keep_it_out() -> None:
    async with rig(admission=Admission(displace_after=0.2)) as r:
        agent = r.network.agents["s2"]
        agent.drop()
        await next_event(r.driver, SwitchDown)
        async with RawPeer(r.driver.port) as impostor:
            await impostor.introduce(2)
            agent.come_back()  # the impostor answers nothing, so it has no place to lose
            await all_up(r.driver, ["s2"])
            assert Type.FLOW_MOD not in impostor.received
        assert await r.apply("s2", adds(1)) == Acknowledged()
        await r.agrees("s2", entry(1))


async def test_a_switch_whose_connection_was_lost_without_a_trace_comes_back() -> None:
    pipeline = Pipeline().extended(LINE)
    options = DriverOptions(port=0, timeout=WAIT, admission=Admission(displace_after=0.2))
    async with (
        OpenFlowDriver(LINE, pipeline, lambda _: "p", {}, options) as driver,
        Proxy(("127.0.0.1", driver.port)) as wire,
        EmulatedNetwork(LINE, [wire.address]) as network,
    ):
        await all_up(driver, NAMES)
        wire.hold()  # neither side hears anything of the other, not even the end
        network.agents["s2"].set_controllers([("127.0.0.1", driver.port)])
        assert "no sign of life" in (await next_event(driver, SwitchDown)).reason
        await all_up(driver, ["s2"])
        outcome = await driver.apply("p", 1, {"s2": adds(1)})
        assert outcome == {"s2": Acknowledged()}


async def test_a_switch_that_reconnects_again_and_again_is_set_up_less_often() -> None:
    async with rig(admission=Admission(reconnect_every=3600)) as r:
        agent = r.network.agents["s2"]
        for _ in range(RECONNECT_BURST - 1):
            agent.drop(0)
            await r.back("s2")
        agent.drop(0)
        await next_event(r.driver, SwitchDown)
        await agent.reached.wait()
        # Its connection waits, and others are refused meanwhile.
        assert set(await claim(r.driver.port, 2)) <= HARMLESS
        assert r.driver.connected() == {"s1", "s3"}


async def test_a_datapath_id_that_the_topology_does_not_have_costs_next_to_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with rig() as r:
        caplog.clear()
        drop_events(r.driver)
        for _ in range(30):
            received = await claim(r.driver.port, 77)
            assert received.count(Type.MULTIPART_REQUEST) == 1  # the ports, nothing about tables
        refused = [event for event in events(r.driver) if isinstance(event, SwitchUnusable)]
        assert {event.dpid for event in refused} == {77}
        assert len([line for line in caplog.messages if "0x4d" in line]) <= 2


async def test_an_auxiliary_connection_is_refused() -> None:
    async with rig() as r, RawPeer(r.driver.port) as raw:
        await raw.introduce(2, auxiliary=1)
        await raw.until_closed()
        assert r.driver.up() == set(NAMES)


# With TLS


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return make_keys(tmp_path_factory.mktemp("authority"))


def switch_tls(authority: Path, *dpids: int) -> ssl.SSLContext:
    """What a switch connects with whose certificate names these datapath ids."""
    name = f"switch-{'-'.join(map(str, dpids))}"
    return sign(authority, name, [f"URI:{dpid_name(dpid)}" for dpid in dpids]).client()


async def test_a_certificate_allows_the_datapath_ids_that_it_names_and_no_others(
    authority: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = Pipeline().extended(LINE)
    options = DriverOptions(port=0, timeout=WAIT, tls=authority.server())
    both = Dialling(tls=switch_tls(authority.authority, 1, 2))
    async with OpenFlowDriver(LINE, pipeline, lambda _: "p", {}, options) as driver:
        assert set(await claim(driver.port, 3, both.tls)) <= HARMLESS
        assert "URI:of:0000000000000003" in driver.down()["s3"]
        controllers = [("127.0.0.1", driver.port)]
        async with EmulatedNetwork(LINE, controllers, dialling=both):
            await all_up(driver, ["s1", "s2"])
            assert driver.up() == {"s1", "s2"}
            third = switch_tls(authority.authority, 3)
            assert set(await claim(driver.port, 2, third)) <= HARMLESS
            assert driver.up() == {"s1", "s2"}
        assert any("URI:of:0000000000000003" in line for line in caplog.messages)


async def test_certificates_without_names_are_accepted_only_if_a_setting_says_so(
    authority: Keys,
) -> None:
    pipeline = Pipeline().extended(LINE)
    plain = Dialling(tls=authority.client())
    for named in (True, False):
        admission = Admission(named_certificates=named)
        options = DriverOptions(port=0, timeout=WAIT, tls=authority.server(), admission=admission)
        async with OpenFlowDriver(LINE, pipeline, lambda _: "p", {}, options) as driver:
            if named:
                assert set(await claim(driver.port, 1, plain.tls)) <= HARMLESS
                assert "and has none" in driver.down()["s1"]
            else:
                controllers = [("127.0.0.1", driver.port)]
                async with EmulatedNetwork(LINE, controllers, dialling=plain):
                    await all_up(driver, NAMES)


async def test_a_certificate_of_somebody_else_gets_nowhere(authority: Keys, tmp_path: Path) -> None:
    stranger = make_keys(tmp_path)
    context = ssl.create_default_context(cafile=authority.authority)
    context.load_cert_chain(*sign(stranger.authority, "switch", [f"URI:{dpid_name(1)}"])[1:])
    pipeline = Pipeline().extended(LINE)
    options = DriverOptions(port=0, timeout=WAIT, tls=authority.server())
    async with OpenFlowDriver(LINE, pipeline, lambda _: "p", {}, options) as driver:
        with pytest.raises((ConnectionError, ssl.SSLError, asyncio.IncompleteReadError)):
            await claim(driver.port, 1, context)
        assert "has not connected" in driver.down()["s1"]
