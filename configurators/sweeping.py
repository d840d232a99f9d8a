"""Entries that no space has any more are removed, whoever was to clear them.

A configurator clears a partition when its space, or a version of it, is gone; but it may die before
that is done, and in mode `sea` perhaps nobody has the partition. What etcd says tells it as well:
an entry was installed after its space was stored. So if an entry is seen on a switch, and later its
space is not there, the entry is nobody's.
"""

import asyncio
import logging
from collections.abc import Callable, Collection

from configurators.desk import SharedDriver
from configurators.spaces import Spaces
from configurators.store.client import Etcd, StoreUnavailable
from configurators.store.documents import BadDocument, decode_space
from configurators.store.keys import SPACES, PartitionName
from dzflow.address import BadAddress, read_match
from sdn.flows import FlowEntry
from sdn.southbound import NOBODY

log = logging.getLogger(__name__)

SWEEP_AFTER = 5.0  # seconds for configurators to clear by themselves
RETRY = 0.5
_LATEST = 1 << 63  # an epoch that no fence is above

Scopes = set[tuple[int, int]]
"""Numbers of spaces, each with a version."""


class Sweeper:
    """Finds out which entries are nobody's, and has them removed from some switches."""

    def __init__(self, etcd: Etcd, spaces: Spaces, switches: Callable[[], Collection[str]]) -> None:
        self._etcd = etcd
        self._spaces = spaces
        self._switches = switches
        self._suspects: Scopes = set()
        self._gone: Scopes = set()  # while switches are compared because of them
        self._wake = asyncio.Event()

    def partition_of(self, entry: FlowEntry) -> str | None:
        """Which partition an entry that was seen belongs to; None if that is not known (yet)."""
        found = self._spaces.partition_of(entry)
        scope = None if found else self._scope(entry)
        if scope is None or self._spaces.has(*scope):
            return found
        if scope in self._gone:
            return NOBODY
        self._suspect({scope})
        return None

    def changed(self, before: Scopes) -> None:
        """Spaces have changed, of which there were these versions."""
        if gone := before - self._spaces.scopes():
            asyncio.get_running_loop().call_later(SWEEP_AFTER, self._suspect, gone)

    async def run(self, driver: SharedDriver) -> None:
        """Have entries removed whenever there are some that may be nobody's."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._sweep(driver)
            except StoreUnavailable as error:
                log.warning("it cannot be found out which entries are nobody's: %s", error)
                self._wake.set()
                await asyncio.sleep(RETRY)

    def _suspect(self, scopes: Scopes) -> None:
        self._suspects |= scopes
        self._wake.set()

    def _scope(self, entry: FlowEntry) -> tuple[int, int] | None:
        try:
            scope = read_match(entry.match, self._spaces.prefix)[0] if entry.match else None
        except BadAddress:
            return None
        return (scope.space, scope.version) if scope else None

    async def _sweep(self, driver: SharedDriver) -> None:
        suspects = set(self._suspects)
        gone = suspects - await self._there()
        self._suspects -= suspects
        if not gone:
            return
        log.warning("entries of spaces that are gone are removed: %s", sorted(gone))
        switches = list(self._switches())
        await self._forget(driver, switches, gone)
        self._gone = gone
        try:
            await driver.check(*switches)
        finally:
            self._gone = set()

    async def _there(self) -> Scopes:
        """The versions of all spaces, as etcd says now."""
        found: Scopes = set()
        for item in (await self._etcd.range(SPACES)).items:
            try:
                doc = decode_space(item.value)
            except BadDocument as error:
                log.error(
                    "%s cannot be read, so no entry is taken for nobody's: %s", item.key, error
                )
                return self._suspects
            found.update((doc.number, version) for version in doc.versions)
        return found

    async def _forget(self, driver: SharedDriver, switches: list[str], gone: Scopes) -> None:
        """Switches should hold nothing of the partitions of versions that are gone."""
        names = {name for switch in switches for name in driver.declared(switch)}
        for name in names:
            if _scope_of(name) in gone:
                await driver.declare(name, _LATEST, {}, switches)


def _scope_of(partition: str) -> tuple[int, int] | None:
    try:
        name = PartitionName.parse(partition)
    except ValueError:
        return None  # not of a space: the base
    return name.space, name.version
