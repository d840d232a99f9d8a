"""Three members with TLS and authentication."""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import msgspec
import pytest
from aetcd import rpc

from configurators.store.etcd.client import (
    Access,
    Etcd,
    Put,
    StoreRefused,
    StoreUnavailable,
    absent,
)
from configurators.store.etcd.connection import EtcdConnection, Member, Metadata
from tests.certificates import make_keys
from tests.etcd import Cluster, three_members
from tests.support import until

WRONG = "another password"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with three_members(tmp_path_factory.mktemp("cluster")) as members:
        yield members


async def enter(access: Access) -> None:
    async with asyncio.timeout(60), Etcd(access):
        pass


async def test_all_members_are_used_by_tls_with_user_and_password(cluster: Cluster) -> None:
    for endpoint in cluster.access().endpoints:
        access = msgspec.structs.replace(cluster.access("all/"), endpoints=(endpoint,))
        async with Etcd(access) as etcd, etcd.lease(30) as lease:
            await etcd.transact([], [Put(endpoint, b"1", lease.id)])
            assert await etcd.get(endpoint) is not None
            states = await etcd.maintenance.states()
            assert [state.full for state in states.values() if state] == [False]
    async with Etcd(cluster.access()) as etcd:

        async def one_leads() -> bool:
            states = await etcd.maintenance.states()
            return sum(state is not None and state.leader for state in states.values()) == 1

        await until(one_leads)  # not while they elect a leader


async def test_a_wrong_password_and_a_missing_user_are_said_clearly(cluster: Cluster) -> None:
    access = cluster.access()
    with pytest.raises(StoreRefused, match="user or the password"):
        await enter(msgspec.structs.replace(access, password=WRONG))
    with pytest.raises(StoreRefused, match="user or the password"):
        await enter(msgspec.structs.replace(access, user="nobody"))
    # The certificate names a user of etcd that does not exist.
    with pytest.raises(StoreRefused):
        await enter(msgspec.structs.replace(access, user=None, password=None))


async def test_a_wrong_or_missing_certificate_is_said_clearly(
    cluster: Cluster, tmp_path: Path
) -> None:
    access = cluster.access()  # said as soon as all members were tried, however long that takes
    strange = make_keys(tmp_path)
    with pytest.raises(StoreRefused, match="check ca, cert and key"):
        await enter(msgspec.structs.replace(access, ca=str(strange.authority)))
    with pytest.raises(StoreRefused, match="check ca, cert and key"):
        await enter(
            msgspec.structs.replace(access, cert=str(strange.certificate), key=str(strange.key))
        )
    with pytest.raises(StoreRefused, match="check ca, cert and key"):
        await enter(msgspec.structs.replace(access, cert=None, key=None))
    with pytest.raises(StoreUnavailable, match="If it uses TLS"):
        await enter(msgspec.structs.replace(access, ca=None, cert=None, key=None, timeout=3))


async def test_files_that_are_no_certificates_are_named(cluster: Cluster, tmp_path: Path) -> None:
    junk = tmp_path / "junk.pem"
    junk.write_text("no certificate")
    for name in (str(junk), str(tmp_path / "missing.pem")):
        with pytest.raises(StoreRefused, match=name):
            await enter(msgspec.structs.replace(cluster.access(), ca=name))
        with pytest.raises(StoreRefused, match=name):
            await enter(msgspec.structs.replace(cluster.access(), cert=name))


async def test_a_user_without_permission_is_refused_reading_and_watching(cluster: Cluster) -> None:
    access = cluster.access("secret/")
    lesser = msgspec.structs.replace(access, user="lesser", password=WRONG)
    granted = rpc.Permission(permType=rpc.Permission.READ, key=b"secret/check")

    connection = EtcdConnection(access)
    for name, request in [
        ("UserAdd", rpc.AuthUserAddRequest(name="lesser", password=WRONG)),
        ("RoleAdd", rpc.AuthRoleAddRequest(name="little")),
        (
            "RoleGrantPermission",
            rpc.AuthRoleGrantPermissionRequest(name="little", perm=granted),
        ),
        ("UserGrantRole", rpc.AuthUserGrantRoleRequest(user="lesser", role="little")),
    ]:

        async def invoke(
            member: Member,
            metadata: Metadata,
            timeout: float,
            name: str = name,
            request: object = request,
        ) -> None:
            await getattr(member.auth, name)(request, timeout=timeout, metadata=metadata)

        await connection.call(invoke, repeatable=False)
    await connection.close()

    async with asyncio.timeout(60), Etcd(lesser) as etcd:
        with pytest.raises(StoreRefused, match="permission"):
            await etcd.get("a")
        with pytest.raises(StoreRefused, match="permission"):
            await etcd.put("a", b"")
        batches = etcd.watch("", 0)
        async with aclosing(batches):
            with pytest.raises(StoreRefused, match="watch"):
                await anext(batches)


async def test_nothing_is_lost_or_doubled_while_members_are_killed_and_come_back(
    cluster: Cluster,
) -> None:
    """Tokens are lost with a member that is killed, so this renews them, too."""
    writers, each = 4, 40

    async def write(etcd: Etcd, writer: int) -> None:
        for number in range(each):
            key = f"w/{writer}-{number}"
            while True:
                try:
                    await etcd.transact([absent(key)], [Put(key, b"")])
                    break
                except StoreUnavailable:
                    continue  # the compare makes it safe
            assert await etcd.get(key) is not None

    async def watch(etcd: Etcd) -> list[str]:
        found: list[str] = []
        batches = etcd.watch("w/", 0)
        async with aclosing(batches):
            async for batch in batches:
                found += [change.key for change in batch.events]
                progress.set()
                if len(found) >= writers * each:
                    return found
        return found

    async def fault(etcd: Etcd) -> None:
        """Kill the member that is used, wait until the others have gone on, let it come back."""
        for round_ in range(3):
            member = cluster.members[round_]
            await asyncio.to_thread(member.kill)
            progress.clear()
            await progress.wait()
            await asyncio.to_thread(member.start)
            await etcd.check()

    progress = asyncio.Event()

    async def keep_writing(etcd: Etcd, until: asyncio.Task[None]) -> None:
        while not until.done():
            try:
                await etcd.put("x", b"")
                progress.set()
            except StoreUnavailable:
                continue
        await until

    async with asyncio.timeout(120), Etcd(cluster.access("kill/", timeout=10)) as etcd:
        watching = asyncio.create_task(watch(etcd))
        async with etcd.lease(60) as lease:
            faults = asyncio.create_task(fault(etcd))
            await asyncio.gather(*(write(etcd, writer) for writer in range(writers)))
            found = await watching
            assert len(found) == len(set(found)) == writers * each
            # No further change comes that would let a killed member be started again.
            progress.set()
            await keep_writing(etcd, faults)
            assert not lease.lost.is_set()
