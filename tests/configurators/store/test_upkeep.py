import asyncio

from configurators.store.etcd.client import Etcd
from configurators.store.upkeep import SharedLeases
from tests.etcd import TestEtcd


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_keys_of_the_same_while_share_a_lease(etcd_server: TestEtcd) -> None:
    clock = Clock()

    async with Etcd(etcd_server.access()) as etcd:
        leases = SharedLeases(etcd, "finished", retention=3600, rotation=60, monotonic=clock)
        first = await asyncio.gather(*(leases.current() for _ in range(50)))
        assert len(set(first)) == 1
        clock.now += 59
        assert await leases.current() == first[0]
        clock.now += 1
        assert await leases.current() != first[0]


async def test_a_lease_has_a_bounded_number_of_keys_and_bytes(etcd_server: TestEtcd) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        leases = SharedLeases(etcd, "keys", retention=3600, group_keys=10, wall=lambda: 7.0)
        first = await leases.current(9, 90)
        assert await leases.current(2, 20) == first
        second = await leases.current(1, 5 << 20)
        assert second != first
        third = await leases.current(1, 1)
        assert third not in (first, second)

        closed = leases.take_closed()
        assert [(group.lease, group.keys, group.bytes) for group in closed] == [
            (first, 11, 110),
            (second, 1, 5 << 20),
        ]
        assert {(group.kind, group.closed) for group in closed} == {("keys", 7.0)}
        assert leases.take_closed() == []
        assert [group.lease for group in leases.take_closed(last=True)] == [third]


async def test_groups_that_could_not_be_listed_are_given_again(etcd_server: TestEtcd) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        leases = SharedLeases(etcd, "finished", retention=3600, group_keys=1)
        await leases.current()
        await leases.current()
        closed = leases.take_closed()
        leases.give_back(closed)
        await leases.current()
        assert leases.take_closed()[:1] == closed


async def test_a_group_is_closed_when_its_time_is_over_though_nothing_is_written(
    etcd_server: TestEtcd,
) -> None:
    clock = Clock()
    async with Etcd(etcd_server.access()) as etcd:
        leases = SharedLeases(etcd, "finished", retention=3600, rotation=60, monotonic=clock)
        lease = await leases.current()
        assert leases.take_closed() == []
        clock.now += 60
        assert [group.lease for group in leases.take_closed()] == [lease]
        assert await leases.current() != lease


async def test_a_lease_that_is_gone_is_replaced_when_told(etcd_server: TestEtcd) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        leases = SharedLeases(etcd, "finished", retention=3600)
        first = await leases.current()
        await etcd.revoke(first)
        leases.forget()
        second = await leases.current()
        assert second != first
        await etcd.put("finished", b"", lease=second)


async def test_keys_with_a_shared_lease_expire(
    etcd_server: TestEtcd,
) -> None:
    async with Etcd(etcd_server.access()) as etcd:
        leases = SharedLeases(etcd, "finished", retention=2, rotation=1)
        revision = await etcd.put("finished", b"", lease=await leases.current())
        async with asyncio.timeout(60):
            async for batch in etcd.watch("finished", revision):
                assert [change.value for change in batch.events] == [None]
                break
