"""Open vSwitch with the certificates of the guide `docs/how-to/own-switches.md`."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sdn.lab import Certificates, Lab
from sdn.network.events import SwitchDown
from sdn.network.topologies import topology
from sdn.network.topology import Topology
from sdn.openflow.driver import DriverOptions, OpenFlowDriver
from sdn.openflow.options import Admission
from sdn.outcomes import Acknowledged
from sdn.tables.pipeline import Pipeline
from tests.certificates import make_as_written
from tests.robustness.proxy import Proxy
from tests.sdn.lab.support import needs_lab
from tests.sdn.southbound.support import WAIT, adds, all_up, drop_events, entry, next_event

pytestmark = needs_lab


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the commands of the page make, as they are written there."""
    return make_as_written("own-switches.md", tmp_path_factory.mktemp("guide")) / "openflow"


@asynccontextmanager
async def guided(made: Path, network: Topology) -> AsyncIterator[OpenFlowDriver]:
    """A driver with the service's certificate."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=made / "ca.pem")
    tls.load_cert_chain(made / "southbound.pem", made / "southbound.key")
    tls.verify_mode = ssl.CERT_REQUIRED
    options = DriverOptions(
        port=0, timeout=WAIT, tls=tls, admission=Admission(displace_after=0.5), discover=False
    )
    pipeline = Pipeline().extended(network)
    async with OpenFlowDriver(network, pipeline, lambda _: "p", {}, options) as driver:
        yield driver


def lab_of(made: Path, network: Topology, port: int) -> Lab:
    files = (made / name for name in ("rack1.key", "rack1.pem", "ca.pem"))
    return Lab(network, f"ssl:127.0.0.1:{port}", tls=Certificates(*files))


async def test_switches_connect_with_these_certificates_and_come_back_after_a_kill(
    made: Path,
) -> None:
    network = topology("line:2")
    async with guided(made, network) as driver:
        with lab_of(made, network, driver.port) as lab:
            await all_up(driver, ["s1", "s2"])
            applied = await driver.apply("p", 1, {"s1": adds(1), "s2": adds(1)})
            assert set(applied.values()) == {Acknowledged()}
            drop_events(driver)
            lab.kill_switches()
            lab.start_switches()
            await all_up(driver, ["s1", "s2"])
            for switch in ("s1", "s2"):
                assert entry(1) in await driver.read(switch)


async def test_a_switch_comes_back_after_its_connection_was_lost_without_a_trace(
    made: Path,
) -> None:
    network = topology("line:1")
    async with guided(made, network) as driver, Proxy(("127.0.0.1", driver.port)) as wire:
        with lab_of(made, network, wire.address[1]) as lab:
            await all_up(driver, ["s1"])
            applied = await driver.apply("p", 1, {"s1": adds(1)})
            assert applied == {"s1": Acknowledged()}
            wire.hold()
            target = f"ssl:127.0.0.1:{driver.port}"
            lab.vsctl("set-controller", lab.bridge("s1"), target)
            assert "no sign of life" in (await next_event(driver, SwitchDown)).reason
            await all_up(driver, ["s1"])
            assert entry(1) in await driver.read("s1")


async def test_a_switch_that_the_certificate_does_not_name_is_refused(made: Path) -> None:
    network = topology("line:3")
    async with guided(made, network) as driver:
        with lab_of(made, network, driver.port):
            await all_up(driver, ["s1", "s2"])
            async with asyncio.timeout(WAIT):
                while "URI:of:0000000000000003" not in driver.down()["s3"]:
                    await driver.read("s1")
            assert driver.up() == {"s1", "s2"}
