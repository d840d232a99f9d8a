"""Writes that are gathered into transactions do not get into each other's way."""

import asyncio

from configurators.store.client import Etcd, Put
from configurators.store.upkeep import SharedLeases
from dispatcher.catalogue import Catalogue
from dispatcher.journal import Journal, Verdict, Write
from tests.etcd import TestEtcd

TIMEOUT = 30.0


def test_of_two_writes_of_a_record_in_one_turn_one_is_written_and_others_do_not_suffer(
    etcd_server: TestEtcd,
) -> None:
    async def run() -> None:
        verdicts: list[tuple[str, Verdict]] = []
        told = asyncio.Event()

        def done(write: Write, verdict: Verdict) -> None:
            verdicts.append((write.about, verdict))
            if len(verdicts) == 3:
                told.set()

        async with Etcd(etcd_server.access()) as etcd:
            journal = Journal(etcd, Catalogue(etcd), SharedLeases(etcd, 60))
            for key, about in (("r/1", "first"), ("r/1", "second"), ("r/2", "other")):
                journal.write(Write(key, 0, [Put(key, about.encode())], done, about))
            async with asyncio.timeout(TIMEOUT):
                await told.wait()
            assert sorted(verdicts, key=str) == [
                ("first", Verdict.WRITTEN),
                ("other", Verdict.WRITTEN),
                ("second", Verdict.CHANGED),
            ]
            stored = await etcd.get("r/1")
            assert stored is not None
            assert stored.value == b"first"
            await journal.close()

    asyncio.run(run())
