"""The record writer: many writes in few transactions, and each gets its result."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple
from unittest.mock import patch

import pytest

from configurators.environment import Clock
from configurators.store.documents import encode
from configurators.store.etcd.client import Etcd, Put
from configurators.store.keys import DISPATCHERS
from configurators.store.model import Process
from configurators.store.registration import Registration
from configurators.store.upkeep import SharedLeases
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.requests.writing.record_writer import RecordWriter
from dispatcher.requests.writing.writes import Write, WriteResult
from tests.dispatcher.support import TIMEOUT, World, world
from tests.etcd import TestEtcd

KEY = DISPATCHERS + "d1"
_confirm = Registration.confirm

Results = dict[str, list[WriteResult]]


class Writer:
    """Writes, and collects the results."""

    def __init__(self, record_writer: RecordWriter) -> None:
        self.record_writer = record_writer
        self.failing: set[str] = set()  # keys of writes whose result causes an error
        self.written: list[tuple[Write, WriteResult]] = []
        self._expected = 0
        self._all = asyncio.Event()

    def write(
        self,
        key: str,
        revision: int = 0,
        value: bytes = b"x",
        apart: float = 0.0,
        **more: object,
    ) -> Write:
        write = Write(key, revision, [Put(key, value)], self._collect, **more)  # type: ignore[arg-type]
        self._expected += 1
        self._all.clear()
        self.record_writer.write(write, apart)
        return write

    def _collect(self, write: Write, result: WriteResult) -> None:
        self.written.append((write, result))
        if len(self.written) == self._expected:
            self._all.set()
        if write.key in self.failing:
            raise ValueError("a writer that fails")

    async def results(self) -> Results:
        """The results by key, when all writes have one."""
        async with asyncio.timeout(TIMEOUT):
            await self._all.wait()
        found: Results = {}
        for write, result in self.written:
            found.setdefault(write.key, []).append(result)
        return found


class Scene(NamedTuple):
    """A world, and a writer whose dispatcher is registered in it."""

    world: World
    catalogue: Catalogue
    writer: Writer
    registration: Registration


@asynccontextmanager
async def scene(etcd_server: TestEtcd, patience: float = 20.0) -> AsyncIterator[Scene]:
    access = etcd_server.access()
    async with world(access) as w, Etcd(access) as etcd:
        catalogue = Catalogue(etcd)
        await catalogue.start()
        registration = Registration(etcd, KEY, Process("d1", "", 1, "n"), 60)
        registered = asyncio.create_task(registration.keep())
        await registration.known.wait()
        leases = SharedLeases(etcd, "finished", 60)
        record_writer = RecordWriter(etcd, catalogue, leases, registration, Clock(), patience)
        yield Scene(w, catalogue, Writer(record_writer), registration)
        await record_writer.close()
        await catalogue.stop()
        registered.cancel()
        await asyncio.gather(registered, return_exceptions=True)


async def transactions(etcd: Etcd) -> int:
    """How many transactions have written the records that there are."""
    return len({stored.revision for stored in (await etcd.range("records/", values=False)).items})


async def test_writes_share_transactions(etcd_server: TestEtcd) -> None:
    async with scene(etcd_server) as (w, _, writer, _):
        for number in range(500):
            writer.write(f"records/1/{number}")
        assert set(map(tuple, (await writer.results()).values())) == {(WriteResult.WRITTEN,)}
        assert await transactions(w.etcd) <= 6
        assert len((await w.etcd.range("records/")).items) == 500


async def test_few_writes_wait_while_two_transactions_are_in_progress(
    etcd_server: TestEtcd,
) -> None:
    async with scene(etcd_server) as (w, _, writer, _):
        for name in ("first", "second", "third", "fourth"):
            writer.write(f"records/1/{name}")
            await asyncio.sleep(0)  # a turn of the loop, in which no answer can have come
        assert writer.record_writer.queued == 2
        assert set(map(tuple, (await writer.results()).values())) == {(WriteResult.WRITTEN,)}
        assert await transactions(w.etcd) == 3


async def test_writes_after_another_may_share_a_transaction_over_turns_of_the_loop(
    etcd_server: TestEtcd,
) -> None:
    async with scene(etcd_server) as (w, _, writer, _):
        writer.write("records/1/lone", apart=TIMEOUT)  # no transaction was before it
        assert await writer.results() == {"records/1/lone": [WriteResult.WRITTEN]}
        writer.write("records/1/first", apart=TIMEOUT)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert writer.record_writer.queued == 1  # it waits, also when nothing is in progress
        writer.write("records/1/second", apart=TIMEOUT)
        await asyncio.sleep(0)
        writer.write("records/1/urgent")  # takes the others along
        assert set(map(tuple, (await writer.results()).values())) == {(WriteResult.WRITTEN,)}
        assert await transactions(w.etcd) == 2
        writer.write("records/1/last", apart=TIMEOUT)
        await writer.record_writer.close()  # also writes what still gathers
        assert (await writer.results())["records/1/last"] == [WriteResult.WRITTEN]


async def test_a_dispatcher_whose_registration_was_taken_away_registers_before_it_writes(
    etcd_server: TestEtcd,
) -> None:
    # When the registration ends, other dispatchers look once for abandoned operations.
    async with scene(etcd_server) as (w, _, writer, _):
        await w.etcd.delete(KEY)
        gone = (await w.etcd.range(KEY)).revision
        async with asyncio.timeout(TIMEOUT):
            writer.write("records/1/1")
            writer.write("records/1/2")
            assert set(map(tuple, (await writer.results()).values())) == {(WriteResult.WRITTEN,)}
        registered = await w.etcd.get(KEY)
        record = await w.etcd.get("records/1/1")
        assert registered
        assert record
        assert gone < registered.revision < record.revision


async def test_transactions_at_the_same_time_register_once(etcd_server: TestEtcd) -> None:
    # Each registration is a new revision, on which the others would fail.
    async with scene(etcd_server) as (w, _, writer, _):
        await w.etcd.delete(KEY)
        with patch.object(Registration, "confirm", autospec=True, side_effect=_confirm) as confirm:
            for number in range(500):
                writer.write(f"records/1/{number}")
            assert set(map(tuple, (await writer.results()).values())) == {(WriteResult.WRITTEN,)}
        assert confirm.call_count == 1


async def test_writes_of_a_dispatcher_that_another_process_has_replaced_fail_at_once(
    etcd_server: TestEtcd,
) -> None:
    async with scene(etcd_server) as (w, _, writer, _):
        await w.etcd.put(KEY, encode(Process("d1", "", 2, "n")))
        written = [writer.write("records/1/1"), writer.write("records/1/2")]
        assert set(map(tuple, (await writer.results()).values())) == {(WriteResult.FAILED,)}
        assert "another process" in str(written[0].error)
        assert not (await w.etcd.range("records/")).items


async def test_writes_wait_for_a_registration_as_long_as_for_etcd_and_no_longer(
    etcd_server: TestEtcd,
) -> None:
    async with scene(etcd_server, patience=0.3) as (w, _, writer, registration):
        registration.known.clear()  # as while etcd gives no lease
        await w.etcd.delete(KEY)
        writer.write("records/1/1")
        assert await writer.results() == {"records/1/1": [WriteResult.FAILED]}


async def test_one_record_that_has_changed_does_not_keep_others_back(etcd_server: TestEtcd) -> None:
    async with scene(etcd_server) as (w, _, writer, _):
        await w.etcd.put("records/1/5", b"changed by another")
        for number in range(10):
            writer.write(f"records/1/{number}")
        results = await writer.results()
        assert results.pop("records/1/5") == [WriteResult.CHANGED]
        assert set(map(tuple, results.values())) == {(WriteResult.WRITTEN,)}
        [found] = [write.found for write, result in writer.written if result is WriteResult.CHANGED]
        assert found
        assert found.value == b"changed by another"


async def test_two_writes_of_one_record_come_one_after_the_other(etcd_server: TestEtcd) -> None:
    async with scene(etcd_server) as (_, _, writer, _):
        writer.write("records/1/a", value=b"first")
        writer.write("records/1/b")
        writer.write("records/1/a", value=b"second")
        assert await writer.results() == {
            "records/1/a": [WriteResult.WRITTEN, WriteResult.CHANGED],
            "records/1/b": [WriteResult.WRITTEN],
        }


async def test_a_write_that_depends_on_a_space_is_refused_when_the_space_has_changed(
    etcd_server: TestEtcd,
) -> None:
    async with scene(etcd_server) as (w, catalogue, writer, _):
        space = catalogue.spaces.named("stocks")
        await catalogue.stop()  # so that it does not hear of the new owner
        await w.etcd.put(f"owners/{space.partitions()[0]}", b"c9")
        writer.write("records/1/a", space=space)
        writer.write("records/1/b")
        assert await writer.results() == {
            "records/1/a": [WriteResult.GUARDED],
            "records/1/b": [WriteResult.WRITTEN],
        }
        await catalogue.refresh(space)
        writer.write("records/1/a", space=space)
        assert (await writer.results())["records/1/a"] == [WriteResult.GUARDED, WriteResult.WRITTEN]


async def test_a_result_from_before_a_change_of_owner_is_refused_after_it(
    etcd_server: TestEtcd,
) -> None:
    async with scene(etcd_server) as (w, catalogue, writer, _):
        space = catalogue.spaces.named("stocks")
        writer.write("records/1/before")
        await writer.results()
        writer.write("records/1/a", space=space, apart=TIMEOUT)
        await w.etcd.put(f"owners/{space.partitions()[0]}", b"c9")
        await catalogue.refresh(space)  # the new owner is known before it is sent
        writer.write("records/1/b", space=space)
        assert await writer.results() == {
            "records/1/before": [WriteResult.WRITTEN],
            "records/1/a": [WriteResult.GUARDED],
            "records/1/b": [WriteResult.WRITTEN],
        }


async def test_one_write_that_etcd_refuses_does_not_keep_others_back(
    etcd_server: TestEtcd,
) -> None:
    async with scene(etcd_server) as (_, _, writer, _):
        for number in range(20):
            key = f"records/1/{number}"
            writer.write(key, leased=[Put(key, b"twice")] if number == 7 else [])
        results = await writer.results()
        assert results.pop("records/1/7") == [WriteResult.FAILED]
        assert set(map(tuple, results.values())) == {(WriteResult.WRITTEN,)}


async def test_large_writes_share_no_more_than_etcd_takes_at_once(etcd_server: TestEtcd) -> None:
    async with scene(etcd_server) as (w, _, writer, _):
        for number in range(6):
            writer.write(f"records/1/{number}", value=bytes(500_000))
        assert set(map(tuple, (await writer.results()).values())) == {(WriteResult.WRITTEN,)}
        assert await transactions(w.etcd) == 3


async def test_an_error_after_one_write_does_not_keep_others_from_their_results(
    etcd_server: TestEtcd, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene(etcd_server) as (_, _, writer, _):
        writer.failing.add("records/1/a")
        writer.write("records/1/a")
        writer.write("records/1/b")
        assert len(await writer.results()) == 2
        assert "after the write of records/1/a (written) came an error" in caplog.text
