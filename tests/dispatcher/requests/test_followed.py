"""Followed records: how callers learn of records that another dispatcher changes."""

import asyncio

import pytest

from configurators.store.etcd.client import Access, Etcd
from dispatcher.errors import Unavailable
from dispatcher.requests.calls.followed import FollowedRecords


async def test_a_caller_that_waits_for_a_record_is_told_when_the_dispatcher_stops() -> None:
    followed = FollowedRecords(Etcd(Access(("nowhere:1",))))
    waiting = asyncio.create_task(followed.wait_until("s1-0", lambda _: True, 60.0))
    await asyncio.sleep(0)
    await followed.close()
    with pytest.raises(Unavailable):
        await waiting


async def test_nobody_can_wait_for_a_record_after_the_dispatcher_has_stopped() -> None:
    followed = FollowedRecords(Etcd(Access(("nowhere:1",))))
    await followed.close()
    with pytest.raises(Unavailable):
        await followed.wait_until("s1-0", lambda _: True, 60.0)
