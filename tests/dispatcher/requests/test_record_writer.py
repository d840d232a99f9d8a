"""The journal: many writes in few transactions, and each learns what became of it."""

import asyncio
from collections.abc import Awaitable, Callable
from unittest.mock import patch

import pytest

from configurators.store.documents import encode
from configurators.store.etcd.client import Etcd, Put
from configurators.store.keys import DISPATCHERS
from configurators.store.model import Process
from configurators.store.registration import Registration
from configurators.store.upkeep import SharedLeases
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.requests.record_writer import Journal, Verdict, Write
from tests.dispatcher.support import TIMEOUT, World, world
from tests.etcd import TestEtcd

KEY = DISPATCHERS + "d1"
_confirm = Registration.confirm

Outcomes = dict[str, list[Verdict]]


class Writer:
    """Writes, and notes what it is told."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.told: list[tuple[Write, Verdict]] = []
        self.expected = 0
        self._all = asyncio.Event()

    def write(
        self,
        key: str,
        revision: int = 0,
        value: bytes = b"x",
        gather: bool = False,
        **more: object,
    ) -> Write:
        write = Write(key, revision, [Put(key, value)], self._tell, **more)  # type: ignore[arg-type]
        self.expected += 1
        self.journal.write(write, gather)
        return write

    def _tell(self, write: Write, verdict: Verdict) -> None:
        self.told.append((write, verdict))
        if len(self.told) == self.expected:
            self._all.set()
        if write.about == "bad":
            raise ValueError("a writer that fails")

    async def outcomes(self) -> Outcomes:
        async with asyncio.timeout(TIMEOUT):
            await self._all.wait()
        found: Outcomes = {}
        for write, verdict in self.told:
            found.setdefault(write.key, []).append(verdict)
        return found


def with_journal(
    etcd_server: TestEtcd, test: Callable[[World, Catalogue, Writer], Awaitable[None]]
) -> None:
    async def run() -> None:
        access = etcd_server.access()
        async with world(access) as w, Etcd(access) as etcd:
            catalogue = Catalogue(etcd)
            await catalogue.start()
            registration = Registration(etcd, KEY, Process("d1", "", 1, "n"), 60)
            registered = asyncio.create_task(registration.keep())
            await registration.known.wait()
            journal = Journal(etcd, catalogue, SharedLeases(etcd, 60), registration)
            await test(w, catalogue, Writer(journal))
            await journal.close()
            await catalogue.stop()
            registered.cancel()
            await asyncio.gather(registered, return_exceptions=True)

    asyncio.run(run())


def test_writes_share_transactions(etcd_server: TestEtcd) -> None:
    async def test(w: World, _: Catalogue, writer: Writer) -> None:
        for number in range(500):
            writer.write(f"records/1/{number}")
        assert set(map(tuple, (await writer.outcomes()).values())) == {(Verdict.WRITTEN,)}
        assert writer.journal.transactions <= 6
        assert len((await w.etcd.range("records/")).items) == 500

    with_journal(etcd_server, test)


def test_writes_that_may_gather_share_a_transaction_over_turns_of_the_loop(
    etcd_server: TestEtcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dispatcher.requests.record_writer._GATHER", TIMEOUT)

    async def test(_: World, __: Catalogue, writer: Writer) -> None:
        writer.write("records/1/first", gather=True)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert writer.journal.queued == 1  # it waits, also when nothing is under way
        writer.write("records/1/second", gather=True)
        await asyncio.sleep(0)
        writer.write("records/1/urgent")  # takes the others along
        assert set(map(tuple, (await writer.outcomes()).values())) == {(Verdict.WRITTEN,)}
        assert writer.journal.transactions == 1
        writer.write("records/1/last", gather=True)
        assert (await _written(writer))["records/1/last"] == [Verdict.WRITTEN]

    async def _written(writer: Writer) -> Outcomes:
        await writer.journal.close()  # also writes what still gathers
        return await writer.outcomes()

    with_journal(etcd_server, test)


def test_a_dispatcher_whose_registration_was_taken_away_registers_before_it_writes(
    etcd_server: TestEtcd,
) -> None:
    # When it ends, others look for what is left, once: what came later, nobody would find.
    async def test(w: World, _: Catalogue, writer: Writer) -> None:
        await w.etcd.delete(KEY)
        gone = (await w.etcd.range(KEY)).revision
        async with asyncio.timeout(TIMEOUT):
            writer.write("records/1/1")
            writer.write("records/1/2")
            assert set(map(tuple, (await writer.outcomes()).values())) == {(Verdict.WRITTEN,)}
        registered = await w.etcd.get(KEY)
        record = await w.etcd.get("records/1/1")
        assert registered
        assert record
        assert gone < registered.revision < record.revision

    with_journal(etcd_server, test)


def test_transactions_at_the_same_time_register_once(etcd_server: TestEtcd) -> None:
    # Each registration is a new revision, on which the others would fail.
    async def test(w: World, _: Catalogue, writer: Writer) -> None:
        await w.etcd.delete(KEY)
        with patch.object(Registration, "confirm", autospec=True, side_effect=_confirm) as confirm:
            for number in range(500):
                writer.write(f"records/1/{number}")
            assert set(map(tuple, (await writer.outcomes()).values())) == {(Verdict.WRITTEN,)}
        assert confirm.call_count == 1

    with_journal(etcd_server, test)


def test_what_another_process_of_the_same_id_replaces_fails_at_once(etcd_server: TestEtcd) -> None:
    async def test(w: World, _: Catalogue, writer: Writer) -> None:
        await w.etcd.put(KEY, encode(Process("d1", "", 2, "n")))
        written = [writer.write("records/1/1"), writer.write("records/1/2")]
        assert set(map(tuple, (await writer.outcomes()).values())) == {(Verdict.FAILED,)}
        assert "another process" in str(written[0].error)
        assert not (await w.etcd.range("records/")).items

    with_journal(etcd_server, test)


def test_writes_do_not_wait_for_a_registration_longer_than_for_the_store(
    etcd_server: TestEtcd,
) -> None:
    async def test(w: World, _: Catalogue, writer: Writer) -> None:
        writer.journal._patience = 0.3
        writer.journal._registration.known.clear()  # as while etcd gives no lease
        await w.etcd.delete(KEY)
        writer.write("records/1/1")
        assert await writer.outcomes() == {"records/1/1": [Verdict.FAILED]}

    with_journal(etcd_server, test)


def test_one_record_that_has_changed_does_not_keep_others_back(etcd_server: TestEtcd) -> None:
    async def test(w: World, _: Catalogue, writer: Writer) -> None:
        await w.etcd.put("records/1/5", b"somebody else's")
        for number in range(10):
            writer.write(f"records/1/{number}")
        outcomes = await writer.outcomes()
        assert outcomes.pop("records/1/5") == [Verdict.CHANGED]
        assert set(map(tuple, outcomes.values())) == {(Verdict.WRITTEN,)}
        [found] = [write.found for write, verdict in writer.told if verdict is Verdict.CHANGED]
        assert found
        assert found.value == b"somebody else's"

    with_journal(etcd_server, test)


def test_two_writes_of_one_record_come_one_after_the_other(etcd_server: TestEtcd) -> None:
    async def test(_: World, __: Catalogue, writer: Writer) -> None:
        writer.write("records/1/a", value=b"first")
        writer.write("records/1/b")
        writer.write("records/1/a", value=b"second")
        assert await writer.outcomes() == {
            "records/1/a": [Verdict.WRITTEN, Verdict.CHANGED],
            "records/1/b": [Verdict.WRITTEN],
        }

    with_journal(etcd_server, test)


def test_what_depends_on_a_space_is_not_written_when_that_has_changed(
    etcd_server: TestEtcd,
) -> None:
    async def test(w: World, catalogue: Catalogue, writer: Writer) -> None:
        space = catalogue.spaces.named("stocks")
        await catalogue.stop()  # so that it does not hear of the new owner
        await w.etcd.put(f"owners/{space.partitions()[0]}", b"c9")
        writer.write("records/1/a", space=space)
        writer.write("records/1/b")
        assert await writer.outcomes() == {
            "records/1/a": [Verdict.GUARDED],
            "records/1/b": [Verdict.WRITTEN],
        }
        await catalogue.refresh(space)
        writer.write("records/1/a", space=space)
        writer._all.clear()
        assert (await writer.outcomes())["records/1/a"] == [Verdict.GUARDED, Verdict.WRITTEN]

    with_journal(etcd_server, test)


def test_what_was_decided_before_a_change_of_owner_is_not_written_after_it(
    etcd_server: TestEtcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dispatcher.requests.record_writer._GATHER", TIMEOUT)

    async def test(w: World, catalogue: Catalogue, writer: Writer) -> None:
        space = catalogue.spaces.named("stocks")
        writer.write("records/1/a", space=space, gather=True)
        await w.etcd.put(f"owners/{space.partitions()[0]}", b"c9")
        await catalogue.refresh(space)  # the new owner is known before it is sent
        writer.write("records/1/b", space=space)
        assert await writer.outcomes() == {
            "records/1/a": [Verdict.GUARDED],
            "records/1/b": [Verdict.WRITTEN],
        }

    with_journal(etcd_server, test)


def test_one_write_that_the_store_refuses_does_not_keep_others_back(
    etcd_server: TestEtcd,
) -> None:
    async def test(_: World, __: Catalogue, writer: Writer) -> None:
        for number in range(20):
            key = f"records/1/{number}"
            writer.write(key, leased=[Put(key, b"twice")] if number == 7 else [])
        outcomes = await writer.outcomes()
        assert outcomes.pop("records/1/7") == [Verdict.FAILED]
        assert set(map(tuple, outcomes.values())) == {(Verdict.WRITTEN,)}

    with_journal(etcd_server, test)


def test_large_writes_share_no_more_than_the_store_takes_at_once(etcd_server: TestEtcd) -> None:
    async def test(_: World, __: Catalogue, writer: Writer) -> None:
        for number in range(6):
            writer.write(f"records/1/{number}", value=bytes(500_000))
        assert set(map(tuple, (await writer.outcomes()).values())) == {(Verdict.WRITTEN,)}
        assert writer.journal.transactions == 3

    with_journal(etcd_server, test)


def test_a_writer_that_fails_does_not_keep_others_from_being_told(
    etcd_server: TestEtcd, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(_: World, __: Catalogue, writer: Writer) -> None:
        writer.write("records/1/a", about="bad")
        writer.write("records/1/b")
        assert len(await writer.outcomes()) == 2
        assert "failed to take up" in caplog.text

    with_journal(etcd_server, test)
