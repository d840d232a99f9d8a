"""Which entries are taken for nobody's, and how calmly switches are compared because of them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from configurators.southbound import sweeper
from configurators.southbound.sweeper import Sweeper
from configurators.state.spaces import Spaces, new_space
from configurators.store.documents import encode
from configurators.store.etcd.client import StoreError
from configurators.store.etcd.operations import Stored
from configurators.store.model import SpaceDoc
from dzflow.address import Scope
from dzflow.region import Region
from sdn.outcomes import Acknowledged, Outcome
from sdn.tables.flows import FlowEntry, Output
from sdn.tables.pipeline import MATCH_PRIORITY
from sdn.tables.shadow import Shadow
from tests.support import until, warnings_of

SCHEMA = {"attributes": [{"name": "x", "type": "int", "min": 0, "max": 65535, "bits": 16}]}
STOCKS = new_space("stocks", 5, SCHEMA, "legs", 1)
WEATHER = new_space("weather", 6, SCHEMA, "legs", 1)
SWITCHES = ["s1", "s2"]


def entry(space: int) -> FlowEntry:
    match = Scope(space).match(Region.parse("01"), 0)
    return FlowEntry(1, MATCH_PRIORITY, match, (Output(2),))


class Store:
    """As much of etcd as is asked."""

    def __init__(self, *docs: SpaceDoc) -> None:
        self.docs = list(docs)
        self.wrong = 0  # so many questions are refused
        self.asked = 0

    async def range(self, _prefix: str) -> Any:
        self.asked += 1
        if self.wrong:
            self.wrong -= 1
            raise StoreError("not now")
        return _Page([Stored(doc.name, encode(doc), 1, 1, 0) for doc in self.docs])


class _Page:
    def __init__(self, items: list[Stored]) -> None:
        self.items = items


class Tables:
    """As much of a driver as is used; what switches hold, and what they should."""

    def __init__(self, sweeper: Sweeper) -> None:
        self.shadows = {switch: Shadow(sweeper.partition_of) for switch in SWITCHES}
        self.tables: dict[str, set[FlowEntry]] = {switch: set() for switch in SWITCHES}
        self.told: list[tuple[str, str]] = []
        self.checking = 0

    def holding(self, switch: str) -> set[str]:
        return self.shadows[switch].holding()

    async def declare(
        self,
        partition: str,
        _epoch: int,
        expected: Mapping[str, Iterable[FlowEntry]],
        switches: Iterable[str],
    ) -> None:
        for switch in switches:
            self.told.append(("declare", switch))
            self.shadows[switch].declare(partition, expected.get(switch, ()))

    async def audit(self, *switches: str) -> dict[str, Outcome]:
        assert not self.checking
        (switch,) = switches
        self.checking += 1
        await asyncio.sleep(0)  # another check could begin now
        self.told.append(("check", switch))
        self.compare(switch)
        self.checking -= 1
        return {switch: Acknowledged()}

    def compare(self, switch: str) -> None:
        for op in self.shadows[switch].repair(self.tables[switch]):
            self.tables[switch].discard(op.entry)


class Setting:
    """A sweeper that has seen some spaces."""

    def __init__(self, *docs: SpaceDoc) -> None:
        self.store = Store(*docs)
        self.spaces = Spaces()
        for doc in docs:
            self.spaces.put(doc)
        self.sweeper = Sweeper(self.store, self.spaces, after=0.0, retry=0.01)  # type: ignore[arg-type]
        self.tables = Tables(self.sweeper)

    def delete(self, doc: SpaceDoc) -> None:
        before = self.spaces.scopes()
        self.store.docs.remove(doc)
        self.spaces.drop(doc.name)
        self.sweeper.changed(before)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        running = asyncio.create_task(self.sweeper.run(self.tables, lambda: SWITCHES))  # type: ignore[arg-type]
        try:
            yield
        finally:
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running

    async def run_until(self, condition: Callable[[], bool]) -> None:
        async with self.running():
            await until(condition)

    def checked(self) -> bool:
        return ("check", SWITCHES[-1]) in self.tables.told


async def test_entries_of_a_deleted_space_are_removed(caplog: pytest.LogCaptureFixture) -> None:
    s = Setting(STOCKS, WEATHER)
    s.tables.tables["s1"] = {entry(5), entry(6)}
    s.tables.tables["s2"] = {entry(5)}
    s.tables.shadows["s1"].declare("5.0/all", [entry(5)])
    s.tables.shadows["s1"].declare("6.0/all", [entry(6)])
    s.tables.shadows["s2"].declare("6.0/all", [])
    s.delete(STOCKS)
    await s.run_until(s.checked)
    assert s.tables.tables == {"s1": {entry(6)}, "s2": set()}
    # Where nothing is held, nothing is declared; switches are compared one after the other.
    assert s.tables.told == [("declare", "s1"), ("check", "s1"), ("check", "s2")]
    assert warnings_of(caplog, sweeper.__name__) == ["2 entries of deleted spaces were removed"]


async def test_no_warning_is_logged_if_no_entry_is_left(caplog: pytest.LogCaptureFixture) -> None:
    s = Setting(STOCKS)
    s.tables.shadows["s1"].declare("5.0/all", [])
    s.delete(STOCKS)
    await s.run_until(s.checked)
    assert s.tables.told == [("check", "s1"), ("check", "s2")]
    assert warnings_of(caplog, sweeper.__name__) == []


async def test_entries_of_a_space_that_was_never_seen_are_left_alone() -> None:
    s = Setting(WEATHER)
    s.tables.tables["s1"] = {entry(5)}
    s.tables.compare("s1")  # as when a switch connects
    async with s.running():
        for _ in range(10):  # it would ask at once
            await asyncio.sleep(0)
        assert s.store.asked == 0
        s.delete(WEATHER)
        await until(s.checked)
    assert s.tables.told == [("check", "s1"), ("check", "s2")]
    assert s.tables.tables["s1"] == {entry(5)}


async def test_entries_of_a_switch_that_connects_later_are_removed() -> None:
    s = Setting(STOCKS)
    s.delete(STOCKS)
    await s.run_until(s.checked)
    s.tables.tables["s2"] = {entry(5)}
    s.tables.compare("s2")
    assert s.tables.tables["s2"] == {entry(5)}
    await s.run_until(lambda: not s.tables.tables["s2"])


async def test_a_space_that_was_created_again_keeps_its_entries() -> None:
    s = Setting(STOCKS)
    s.tables.tables["s1"] = {entry(5)}
    s.delete(STOCKS)
    s.store.docs.append(STOCKS)  # and we do not know yet
    await s.run_until(lambda: s.store.asked > 0)
    assert s.tables.told == []
    assert s.tables.tables["s1"] == {entry(5)}


async def test_the_sweeper_retries_when_etcd_fails() -> None:
    s = Setting(STOCKS)
    s.tables.tables["s2"] = {entry(5)}
    s.store.wrong = 3
    s.delete(STOCKS)
    await s.run_until(lambda: not s.tables.tables["s2"])
    assert s.store.asked > 3
