"""What switches should hold and what they hold agree again, by the difference and nothing more."""

import asyncio

import msgspec
import pytest
from msgspec.structs import replace

from dzflow.address import Scope
from sdn.network.events import RefusalChanged, Repaired, SwitchDown, SwitchUp
from sdn.network.topologies import topology
from sdn.onos.client import OnosUnauthorized, OnosUnreachable
from sdn.onos.driver import OnosDriver
from sdn.onos.wire import ADDED
from sdn.outcomes import Acknowledged, Failed, Undefined
from sdn.tables.pipeline import Pipeline
from tests.onos_standin import Behaviour, OnosStandIn
from tests.sdn.clock import leap
from tests.sdn.onos.support import (
    DELIVER,
    DONE,
    EVENT,
    LET_IN,
    LINE,
    ON,
    PIPELINE,
    QUICK,
    Stage,
    access,
    add,
    forward,
    network_of,
    out,
    partition_of,
    reconcile,
    stage,
    to_host,
)
from tests.support import until

WANTED = {"s1": [LET_IN, ON], "s2": [DELIVER]}
NOTHING = {"POST": 0, "DELETE": 0}

FOREIGN = {
    "priority": 40000,
    "isPermanent": True,
    "deviceId": "of:0000000000000001",
    "treatment": {"instructions": [{"type": "OUTPUT", "port": "2"}]},
    "selector": {"criteria": [{"type": "IN_PORT", "port": 1}]},
}


async def wired(on: Stage) -> None:
    assert await reconcile(on.driver, "p7", 1, WANTED) == DONE
    on.onos.requests.clear()
    on.forget_events()


def foreign_rules(on: Stage) -> list[tuple[str, str]]:
    return [(r.app, r.state) for r in on.onos.rules("s1") if r.app != "org.dzflow"]


async def plant(on: Stage, app: str, **changes: object) -> None:
    on.onos.post(msgspec.json.encode({"flows": [{**FOREIGN, **changes}]}), app)
    await until(lambda: all(rule.state == ADDED for rule in on.onos.rules("s1")))


async def test_reconciling_brings_what_is_missing_and_takes_what_is_too_much() -> None:
    async with stage(LINE) as on:
        await wired(on)
        assert on.reached("h1", EVENT) == {"h2": 1}
        assert await reconcile(on.driver, "p7", 1, WANTED) == DONE
        assert on.writes() == NOTHING
        changed = forward(PIPELINE, "0", *out(1), to_host(PIPELINE, "s1", "h1"))
        fine = forward(PIPELINE, "00", *out(1))
        wanted = {"s1": [LET_IN, changed, fine]}  # nothing any more on s2
        assert await reconcile(on.driver, "p7", 1, wanted) == DONE
        assert on.writes() == {"POST": 2, "DELETE": 1}
        assert set(await on.driver.read("s1")) == on.expected("s1", LET_IN, changed, fine)
        assert set(await on.driver.read("s2")) == on.expected("s2")


async def test_a_new_driver_takes_over_what_is_there() -> None:
    async with stage(LINE) as on:
        await wired(on)
        again = OnosDriver(LINE, PIPELINE, partition_of, {}, access(on.onos), QUICK)
        async with again:
            # Entries of partitions that were not declared yet are left alone.
            assert set(await again.read("s1")) == on.expected("s1", LET_IN, ON)
            assert on.writes() == NOTHING
            assert await reconcile(again, "p7", 2, WANTED) == DONE
            assert on.writes() == NOTHING
            assert await reconcile(again, "p8", 2, {}) == DONE
            assert on.writes() == NOTHING
            assert await reconcile(again, "p7", 2, {}) == DONE
            assert set(await again.read("s1")) == on.expected("s1")


async def test_rules_of_other_applications_are_never_touched() -> None:
    async with stage(LINE) as on:
        await plant(on, "org.onosproject.fwd")
        # Even one in our table and of our form, for all its match.
        theirs = {
            "tableId": 1,
            "selector": {
                "criteria": [
                    {"type": "ETH_TYPE", "ethType": "0x86dd"},
                    {"type": "IPV6_DST", "ip": "ff1e:ffff::/32"},
                ]
            },
        }
        await plant(on, "org.onosproject.fwd", **theirs)
        await wired(on)
        assert await reconcile(on.driver, "p7", 1, {}) == DONE
        assert await on.driver.audit("s1", "s2") == DONE
        assert foreign_rules(on) == [("org.onosproject.fwd", ADDED)] * 2
        assert set(await on.driver.read("s1")) == on.expected("s1")


async def test_rules_under_our_name_that_we_never_write_are_removed() -> None:
    async with stage(LINE) as on:
        await wired(on)
        await plant(on, "org.dzflow")
        assert await on.driver.audit("s1") == {"s1": Acknowledged()}
        assert on.writes() == {"POST": 0, "DELETE": 1}
        assert len(on.onos.rules("s1")) == len(set(await on.driver.read("s1"))) + 15


async def test_a_rule_of_ours_that_somebody_changed_is_changed_back() -> None:
    selector = {
        "criteria": [
            {"type": "ETH_TYPE", "ethType": "0x86dd"},
            {"type": "IPV6_DST", "ip": str(ON.match)},
        ]
    }
    place = {"tableId": ON.table, "priority": ON.priority, "selector": selector}
    elsewhere = {"type": "L3MODIFICATION", "subtype": "IPV6_DST", "ip": "fd00::bad"}

    async with stage(LINE) as on:
        await wired(on)
        for changed in ([{"type": "OUTPUT", "port": "9"}], [elsewhere], []):
            await plant(on, "org.dzflow", **place, treatment={"instructions": changed})
            assert ON not in await on.driver.read("s1")
            assert await on.driver.audit("s1") == {"s1": Acknowledged()}
            assert on.writes() == {"POST": 1, "DELETE": 0}
            assert set(await on.driver.read("s1")) == on.expected("s1", LET_IN, ON)
            assert on.reached("h1", EVENT) == {"h2": 1}


async def test_a_check_repairs_just_what_was_lost() -> None:
    async with stage(LINE) as on:
        await wired(on)
        assert on.onos.drop_rules("s1", lambda rule: rule.key == ON.key) == 1
        assert on.reached("h1", EVENT) == {}
        assert await on.driver.audit("s1", "s2") == DONE
        assert on.writes() == {"POST": 1, "DELETE": 0}
        assert await on.told(Repaired) == Repaired("s1", 1)
        assert on.reached("h1", EVENT) == {"h2": 1}


async def test_a_rule_missing_on_one_tree_is_seen_and_brought_back_alone() -> None:
    async with stage(LINE) as on:
        await wired(on)
        lost = [rule.key for rule in on.onos.rules("s1") if rule.key.in_port == 2][3]
        assert on.onos.drop_rules("s1", lambda rule: rule.key == lost) == 1
        assert LET_IN not in await on.driver.read("s1")
        assert await on.driver.audit("s1") == {"s1": Acknowledged()}
        assert on.writes() == {"POST": 1, "DELETE": 0}
        assert LET_IN in await on.driver.read("s1")


async def test_everything_lost_is_brought_back_base_entries_too() -> None:
    async with stage(LINE) as on:
        await wired(on)
        on.onos.drop_rules("s1")
        assert await on.driver.read("s1") == []
        assert await on.driver.audit("s1") == {"s1": Acknowledged()}
        assert set(await on.driver.read("s1")) == on.expected("s1", LET_IN, ON)


async def test_rules_that_share_ids_are_told_apart_in_repairs() -> None:
    async with stage(LINE, id_bits=2) as on:
        entries = [forward(PIPELINE, f"{n:03b}", *out(1)) for n in range(8)]
        assert await reconcile(on.driver, "p7", 1, {"s1": entries}) == DONE
        assert await reconcile(on.driver, "p7", 1, {"s1": entries[4:]}) == DONE
        assert set(await on.driver.read("s1")) == on.expected("s1", *entries[4:])


async def test_the_audit_repairs_by_itself() -> None:
    async with stage(LINE, replace(QUICK, audit_every=0.01)) as on:
        await wired(on)
        on.onos.drop_rules("s2", lambda rule: rule.key == DELIVER.key)
        assert await on.told(Repaired) == Repaired("s2", 1)
        assert on.reached("h1", EVENT) == {"h2": 1}


async def test_a_repair_that_is_refused_or_not_confirmed_says_so() -> None:
    async with stage(LINE) as on:
        assert await reconcile(on.driver, "p7", 1, WANTED) == DONE
        on.onos.drop_rules("s1", lambda rule: rule.key == ON.key)
        on.onos.set_behaviour("s1", Behaviour.FAILING)
        failed = (await on.driver.audit("s1"))["s1"]
        assert isinstance(failed, Failed)
        assert "ff1e:1d0::/33" in failed.refused[0]
        assert on.driver.refusing() == {"s1": failed.refused[0]}
        assert await on.told(RefusalChanged) == RefusalChanged("s1", failed.refused[0])
        on.onos.set_behaviour("s1", Behaviour.STUCK)
        on.onos.requests.clear()
        waiting = asyncio.create_task(on.driver.audit("s1"))
        await on.until_asked("POST")
        await on.until_asked("GET", 3)  # two of them whether the rule is there by now
        await leap(QUICK.confirm)
        assert isinstance((await waiting)["s1"], Undefined)
        assert "s1" not in on.driver.connected()
        assert on.driver.refusing() == {}


async def test_a_switch_that_goes_is_down_and_one_that_returns_is_brought_in_line() -> None:
    async with stage(LINE) as on:
        assert {await on.told(SwitchUp), await on.told(SwitchUp)} == {
            SwitchUp("s1"),
            SwitchUp("s2"),
        }
        await wired(on)
        on.onos.disconnect("s2")
        await on.driver.check_devices()
        down = await on.told(SwitchDown)
        assert isinstance(down, SwitchDown)
        assert down.switch == "s2"
        assert "not connected to ONOS" in down.reason
        on.onos.requests.clear()
        outcomes = await on.driver.apply("p7", 1, {"s1": add(ON), "s2": add(DELIVER)})
        assert outcomes["s1"] == Acknowledged()
        assert isinstance(outcomes["s2"], Undefined)
        # What should hold can be declared all the same.
        fine = forward(PIPELINE, "00", to_host(PIPELINE, "s2", "h2"))
        declared = await reconcile(on.driver, "p7", 1, {**WANTED, "s2": [fine]})
        assert isinstance(declared["s2"], Undefined)
        on.onos.drop_rules("s2")
        on.onos.connect("s2")
        await on.driver.check_devices()
        assert await on.told(SwitchUp) == SwitchUp("s2")
        assert set(await on.driver.read("s2")) == on.expected("s2", fine)


async def test_the_driver_watches_by_itself() -> None:
    async with stage(LINE, replace(QUICK, watch_every=0.01)) as on:
        on.onos.disconnect("s2")
        assert isinstance(await on.told(SwitchDown), SwitchDown)
        on.onos.connect("s2")
        while await on.told(SwitchUp) != SwitchUp("s2"):
            pass
        await on.onos.stop()
        assert isinstance(await on.told(SwitchDown), SwitchDown)
        await on.onos.start()
        assert isinstance(await on.told(SwitchUp), SwitchUp)


async def test_onos_goes_and_comes_back() -> None:
    async with stage(LINE) as on:
        await wired(on)
        await on.onos.stop()
        outcomes = await on.driver.apply("p7", 1, {"s1": add(ON)})
        assert isinstance(outcomes["s1"], Undefined)
        assert "is ONOS running there?" in outcomes["s1"].reason
        with pytest.raises(OnosUnreachable):
            await on.driver.read("s1")
        with pytest.raises(OnosUnreachable):
            await on.driver.check_devices()
        assert on.driver.connected() == set()
        on.onos.drop_rules("s1", lambda rule: rule.key == ON.key)
        await on.onos.start()
        await on.driver.check_devices()
        assert on.driver.connected() == {"s1", "s2"}
        assert set(await on.driver.read("s1")) == on.expected("s1", LET_IN, ON)
        assert await on.driver.apply("p7", 1, {"s1": add(ON)}) == {"s1": Acknowledged()}
        assert on.reached("h1", EVENT) == {"h2": 1}


async def test_a_driver_does_not_start_with_a_wrong_password() -> None:
    async with stage(LINE) as on:
        secret = access(on.onos, password="nonsense")  # noqa: S106
        assert "nonsense" not in repr(secret)
        with pytest.raises(OnosUnauthorized, match="check user \\(onos\\) and password"):
            await OnosDriver(LINE, PIPELINE, partition_of, {}, secret, QUICK).__aenter__()


async def test_a_driver_does_not_start_without_onos() -> None:
    async with stage(LINE) as on:
        await on.onos.stop()
        here = access(on.onos)
        with pytest.raises(OnosUnreachable, match="is ONOS running there"):
            await OnosDriver(LINE, PIPELINE, partition_of, {}, here, QUICK).__aenter__()


async def test_a_switch_that_onos_does_not_know_is_down() -> None:
    longer = topology("line:3")

    network, _ = network_of(LINE)
    async with OnosStandIn(network) as onos:
        pipeline = Pipeline(plan="lpm").extended(longer)
        driver = OnosDriver(longer, pipeline, partition_of, {}, access(onos), QUICK)
        async with driver:
            assert driver.connected() == {"s1", "s2"}
            entry = forward(pipeline, "0", *out(1), scope=Scope(3))
            outcomes = await driver.apply("p3", 1, {"s3": add(entry), "s1": add(entry)})
            assert isinstance(outcomes["s3"], Undefined)
            assert outcomes["s1"] == Acknowledged()
