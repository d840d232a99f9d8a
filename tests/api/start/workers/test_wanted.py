"""Of the settings and of calls like `POST /configurators`, the last change says how many run."""

import asyncio

import pytest

from api.start.settings.sections.switches import OpenFlowSettings
from api.start.settings.settings import BadSettings, Settings
from api.start.workers.wanted import (
    Counts,
    Worker,
    apply_setting,
    find_other_counts,
    load_or_store_counts,
    parse_worker,
    placed_kinds,
    read_counts,
)
from configurators.store.documents import encode
from configurators.store.etcd.client import Etcd
from configurators.store.keys import wanted_key
from configurators.store.model import Wanted
from tests.etcd import TestEtcd
from tests.support import WAIT

FOUR = Settings(configurators=4)


def test_a_worker_is_named_after_its_part_and_number() -> None:
    assert Worker("configurators", 2).id == "configurator-2"
    assert Worker("southbound", 1).id == "southbound-1"
    for worker in (Worker("configurators", 12), Worker("southbound", 1)):
        assert parse_worker(worker.id) == worker
    for other in ("", "configurator-", "configurator-0", "api-1", "configurator-1-2"):
        assert parse_worker(other) is None


async def test_the_first_start_stores_the_settings_and_later_ones_read_them(
    etcd_server: TestEtcd,
) -> None:
    async with Etcd(etcd_server.access()) as etcd, asyncio.timeout(WAIT):
        waiting = asyncio.create_task(read_counts(etcd))
        assert await load_or_store_counts(etcd, FOUR) == {"configurators": 4, "southbound": 1}
        assert await waiting == {"configurators": 4, "southbound": 1}
        assert await load_or_store_counts(etcd, FOUR) == {"configurators": 4, "southbound": 1}
        again = await load_or_store_counts(etcd, Settings())
        assert again == {"configurators": 4, "southbound": 1}, "a default is not asked for"


async def test_settings_that_stay_the_same_keep_what_was_scaled_and_changed_ones_count(
    etcd_server: TestEtcd,
) -> None:
    async def start(count: int | None) -> int:
        settings = Settings() if count is None else Settings(configurators=count)
        return (await load_or_store_counts(etcd, settings))["configurators"]

    async with Etcd(etcd_server.access()) as etcd, asyncio.timeout(WAIT):
        assert await start(4) == 4
        await etcd.put(wanted_key("configurators"), encode(Wanted(6, given=4)))  # by a call
        assert await start(4) == 6
        assert await start(None) == 6
        assert await start(3) == 3, "the setting was changed after the call"
        assert await start(3) == 3
        assert await start(4) == 4, "a rollback"


def test_a_setting_is_applied_when_it_is_another_one_than_before() -> None:
    assert apply_setting(None, 2, named=False) == Wanted(2)
    assert apply_setting(None, 2, named=True) == Wanted(2, 2)
    assert apply_setting(Wanted(5), 2, named=True) == Wanted(2, 2)
    assert apply_setting(Wanted(5, 2), 2, named=True) == Wanted(5, 2)
    assert apply_setting(Wanted(5, 2), 3, named=True) == Wanted(3, 3)
    assert apply_setting(Wanted(5, 3), 2, named=False) == Wanted(5, 3)


def test_a_number_that_is_given_but_not_used_is_named_with_what_to_do() -> None:
    stored: Counts = {"configurators": 2, "southbound": 3}
    (hint,) = find_other_counts(FOUR, stored)
    assert hint.startswith("2 configurators are started, not 4:")
    assert "`dzflow configurators scale 4`" in hint
    assert find_other_counts(Settings(), stored) == [], "the default is not asked for"
    (hint,) = find_other_counts(Settings(configurators=2, southbound=1), stored)
    assert hint.startswith("3 southbound processes are started, not 1:")


async def test_a_count_that_cannot_be_read_is_replaced_by_the_settings(
    etcd_server: TestEtcd,
) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        await etcd.put(wanted_key("configurators"), b"nonsense")
        assert (await load_or_store_counts(etcd, FOUR))["configurators"] == 4


async def test_nobody_counts_southbound_processes_that_are_started_outside(
    etcd_server: TestEtcd,
) -> None:
    outside = Settings(southbound_placed="outside", openflow=OpenFlowSettings(ports=(6653,)))
    async with Etcd(etcd_server.access()) as etcd, asyncio.timeout(WAIT):
        await etcd.put(wanted_key("southbound"), encode(Wanted(3)))
        assert await load_or_store_counts(etcd, outside) == {"configurators": 2}
        assert await etcd.get(wanted_key("southbound")) is None, "none of them is to leave"
        assert await read_counts(etcd, placed_kinds(outside)) == {"configurators": 2}


async def test_each_wanted_southbound_process_needs_one_of_the_ports(etcd_server: TestEtcd) -> None:
    settings = Settings(openflow=OpenFlowSettings(ports=(6653, 6654)))
    async with Etcd(etcd_server.access()) as etcd:
        await etcd.put(wanted_key("southbound"), encode(Wanted(2)))
        assert (await load_or_store_counts(etcd, settings))["southbound"] == 2
        await etcd.put(wanted_key("southbound"), encode(Wanted(3)))
        with pytest.raises(BadSettings, match=r"openflow\.ports: there are 2, but 3"):
            await load_or_store_counts(etcd, settings)
