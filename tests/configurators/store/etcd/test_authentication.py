"""An etcd of dzflow's own gets a password, once, whatever happened before."""

import os
from pathlib import Path

import pytest
from aetcd import rpc
from msgspec.structs import replace

from configurators.store.etcd.authentication import ROOT, require_password
from configurators.store.etcd.client import Access, Etcd, Put, StoreRefused
from configurators.store.etcd.connection import EtcdConnection
from tests.command import run_dzflow
from tests.etcd import running

PASSWORD = "a password of etcd"  # noqa: S105
LIMIT = 30.0


def with_password(access: Access, password: str = PASSWORD) -> Access:
    return replace(access, user=ROOT, password=password)


async def test_etcd_asks_for_the_password_from_then_on(tmp_path: Path) -> None:
    with running(tmp_path / "etcd") as server:
        access = server.access("test/", LIMIT)
        async with Etcd(with_password(access)) as early:  # a process that has started before
            await early.transact([], [Put("key", b"1")])
            assert await require_password(with_password(access), LIMIT)
            assert await early.get("key") is not None
            assert await early.get("key") is not None
            watched = await anext(early.watch("", 1))
            assert [event.key for event in watched.events] == ["key"]
        with pytest.raises(StoreRefused, match="give them"):
            async with Etcd(access):
                pass
        with pytest.raises(StoreRefused, match="user or the password"):
            async with Etcd(with_password(access, "another one")):
                pass


async def test_it_can_be_repeated_and_keeps_the_tokens_of_others(tmp_path: Path) -> None:
    with running(tmp_path / "etcd") as server:
        access = with_password(server.access("test/", LIMIT))
        assert await require_password(access, LIMIT)
        assert not await require_password(access, LIMIT)


async def test_it_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    with running(tmp_path / "etcd") as server:
        access = server.access("test/", LIMIT)
        connection = EtcdConnection(access)
        request = rpc.AuthUserAddRequest(name=ROOT, password="of an earlier try")  # noqa: S106
        await connection.call(
            lambda member, _, timeout: member.auth.UserAdd(request, timeout=timeout), True
        )
        await connection.close()
        assert await require_password(with_password(access), LIMIT)
        async with Etcd(with_password(access)) as etcd:
            assert await etcd.get("key") is None


async def test_another_password_is_refused(tmp_path: Path) -> None:
    with running(tmp_path / "etcd") as server:
        access = server.access("test/", LIMIT)
        await require_password(with_password(access), LIMIT)
        with pytest.raises(StoreRefused, match="user or the password"):
            await require_password(with_password(access, "another one"), LIMIT)


async def test_only_root_with_a_password_will_do(tmp_path: Path) -> None:
    access = Access((f"unix:{tmp_path}/none",))
    for user, password in ((None, None), ("dzflow", PASSWORD), (ROOT, None)):
        wrong = replace(access, user=user, password=password)
        with pytest.raises(StoreRefused, match=r"etcd\.user"):
            await require_password(wrong, LIMIT)


def test_the_command_does_it_with_the_settings_of_the_service(tmp_path: Path) -> None:
    with running(tmp_path / "etcd") as server:
        (endpoint,) = server.access("test/", LIMIT).endpoints
        config = tmp_path / "dzflow.yaml"
        config.write_text(f"etcd: {{endpoints: ['{endpoint}'], user: root}}\n")
        variables = {**os.environ, "DZFLOW_ETCD__PASSWORD": PASSWORD}
        for said in ("asks for a password now", "asked for this password already"):
            done = run_dzflow("etcd", "secure", "--config", config, env=variables)
            assert done.returncode == 0, done.stderr
            assert said in done.stdout
        wrong = {**variables, "DZFLOW_ETCD__PASSWORD": "another one"}
        done = run_dzflow("etcd", "secure", "--config", config, env=wrong)
        assert done.returncode == 1
        assert "user or the password" in done.stderr
