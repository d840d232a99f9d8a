"""How processes are registered, and notice that another process has taken their id."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from configurators.store.documents import encode
from configurators.store.etcd.client import Access, Etcd, StoreUnavailable
from configurators.store.keys import DISPATCHERS
from configurators.store.model import Process
from configurators.store.registration import Registration, Superseded
from tests.etcd import TestEtcd
from tests.support import WAIT, until

KEY = DISPATCHERS + "d1"
OURS, OTHER = Process("d1", "", 1, "n"), Process("d1", "", 2, "n")


@asynccontextmanager
async def kept(registration: Registration) -> AsyncIterator["asyncio.Task[None]"]:
    """Keep a process registered until the block ends."""
    task = asyncio.create_task(registration.keep())
    try:
        async with asyncio.timeout(WAIT):
            await registration.known.wait()
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_a_process_that_was_never_registered_has_no_comparison() -> None:
    # Revision 0 would mean that the key does not exist, which holds.
    etcd = Etcd(Access(("127.0.0.1:1",)))
    registration = Registration(etcd, KEY, OURS)
    with pytest.raises(StoreUnavailable, match="not registered"):
        registration.stands()
    registration.revision = 7
    assert registration.stands().revision == 7


async def test_a_process_ends_when_another_one_is_seen_under_its_id(etcd_server: TestEtcd) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        registration = Registration(etcd, KEY, OURS)
        async with kept(registration) as task:
            registration.observe(OURS, registration.revision)
            registration.observe(OTHER, registration.revision - 1)  # replaced by this one
            assert not task.done()
            registration.observe(OTHER, registration.revision + 1)
            with pytest.raises(Superseded, match="dispatchers/d1"):
                await asyncio.wait_for(task, WAIT)


async def test_a_process_that_may_not_replace_another_one_leaves_it_alone(
    etcd_server: TestEtcd,
) -> None:
    async with Etcd(etcd_server.access()) as etcd, asyncio.timeout(WAIT):
        async with kept(Registration(etcd, KEY, OURS)):
            other = Registration(etcd, KEY, OTHER, replace=False)
            with pytest.raises(Superseded, match="dispatchers/d1"):
                await other.keep()
            assert other.revision == 0, "it was never registered"
        async with kept(Registration(etcd, KEY, OTHER, replace=False)) as task:
            assert not task.done(), "the key is free"


async def test_confirming_fails_when_another_process_is_registered(etcd_server: TestEtcd) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        ours, other = Registration(etcd, KEY, OURS), Registration(etcd, KEY, OTHER)
        async with kept(ours), kept(other):
            await other.confirm()
            with pytest.raises(Superseded):
                await ours.confirm()


async def test_a_process_registers_again_after_its_lease_was_lost(etcd_server: TestEtcd) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        lost_at: list[int] = []

        async def on_lost() -> None:
            assert not registration.known.is_set()
            lost_at.append(registration.revision)

        registration = Registration(etcd, KEY, OURS, ttl=6, on_lost=on_lost)
        async with kept(registration):
            first = registration.revision
            stored = await etcd.get(KEY)
            assert stored
            await etcd.revoke(stored.lease)
            await until(lambda: lost_at and registration.known.is_set())
            assert lost_at == [first]
            assert registration.revision > first


async def test_other_keys_of_a_process_disappear_with_its_registration(
    etcd_server: TestEtcd,
) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        registration = Registration(etcd, KEY, OURS)
        with pytest.raises(StoreUnavailable, match="not registered"):
            await registration.put("more/d1", b"value")
        async with kept(registration):
            await registration.put("more/d1", b"value")
            stored = await etcd.get("more/d1")
            assert stored
            assert stored.value == b"value"
            # Another process has the id by now.
            await etcd.put(KEY, encode(OTHER))
            with pytest.raises(StoreUnavailable, match="has just been changed"):
                await registration.put("more/d1", b"other")
        assert await etcd.get("more/d1") is None
