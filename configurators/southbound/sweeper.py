"""Entries that no space has any more are removed, whoever was to clear them.

A configurator clears a partition when its space, or a version of it, is gone; but it may die before
that is done, and in mode `sea` perhaps nobody has the partition. So whoever has seen in etcd that a
version was deleted removes what switches still hold of it, after a while. A version that was never
seen tells nothing: etcd may have been lost, and be restored later.
"""

import asyncio
import logging
from collections.abc import Callable, Collection

from configurators.state.spaces import Spaces
from configurators.store.documents import BadDocument, decode_space
from configurators.store.etcd.client import Etcd, StoreError
from configurators.store.keys import SPACES, PartitionName
from dzflow.address import BadAddress, read_match
from sdn.driver import SwitchDriver
from sdn.flows import FlowEntry
from sdn.outcomes import Acknowledged
from sdn.shadow import NOBODY
from sdn.topology import UnknownSwitch

log = logging.getLogger(__name__)

SWEEP_AFTER = 5.0  # seconds for configurators to clear by themselves
RETRY = 0.5
REST, LONGEST_REST = 9, 5.0  # times as long as a switch was compared; at most so many seconds
_LATEST = 1 << 63  # an epoch that no fence is above

Scopes = set[tuple[int, int]]
"""Numbers of spaces, each with a version."""


class Sweeper:
    """Finds out which entries are nobody's, and has them removed from some switches."""

    def __init__(self, etcd: Etcd, spaces: Spaces, switches: Callable[[], Collection[str]]) -> None:
        self._etcd = etcd
        self._spaces = spaces
        self._switches = switches
        self._deleted: Scopes = set()  # those that we have seen go
        self._suspects: Scopes = set()  # of these, those that a switch may hold something of
        self._gone: Scopes = set()  # while a switch is compared because of them
        self._found = 0  # entries of those
        self._wake = asyncio.Event()

    def partition_of(self, entry: FlowEntry) -> str | None:
        """Which partition an entry that was seen belongs to; None if that is not known (yet)."""
        found = self._spaces.partition_of(entry)
        scope = None if found else self._scope(entry)
        if scope is None or self._spaces.has(*scope):
            return found
        if scope in self._gone:
            self._found += 1
            return NOBODY
        if scope in self._deleted:
            self._suspect({scope})
        return None

    def changed(self, before: Scopes) -> None:
        """Spaces were changed or deleted, of which there were these versions."""
        there = self._spaces.scopes()
        self._deleted -= there
        if gone := before - there:
            asyncio.get_running_loop().call_later(SWEEP_AFTER, self._over, gone)

    async def run(self, driver: SwitchDriver) -> None:
        """Have entries removed whenever there are some that may be nobody's."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._sweep(driver)
            except StoreError as error:
                log.warning("it cannot be found out which entries are nobody's: %s", error)
                self._wake.set()
                await asyncio.sleep(RETRY)

    def _over(self, gone: Scopes) -> None:
        """Configurators have had their time."""
        left = gone - self._spaces.scopes()
        self._deleted |= left
        self._suspect(left)

    def _suspect(self, scopes: Scopes) -> None:
        self._suspects |= scopes
        self._wake.set()

    def _scope(self, entry: FlowEntry) -> tuple[int, int] | None:
        try:
            scope = read_match(entry.match, self._spaces.prefix)[0] if entry.match else None
        except BadAddress:
            return None
        return (scope.space, scope.version) if scope else None

    async def _sweep(self, driver: SwitchDriver) -> None:
        """Compare all switches because of the suspects: one at a time, and there is no hurry."""
        suspects, self._suspects = self._suspects, set()
        clock = asyncio.get_running_loop().time
        removed = 0
        try:
            for switch in sorted(self._switches()):
                # Each time: what is there again by now may have entries, too.
                if not (gone := await self._gone_of(suspects)):
                    break
                began = clock()
                removed += await self._clear(driver, switch, gone)
                await asyncio.sleep(min(REST * (clock() - began), LONGEST_REST))
        except StoreError:
            self._suspects |= suspects
            raise
        finally:
            if removed:
                log.warning("%d entries of spaces that are gone were removed", removed)

    async def _clear(self, driver: SwitchDriver, switch: str, gone: Scopes) -> int:
        """Remove what a switch holds of versions that are gone; returns how many entries."""
        if switch not in self._switches():
            return 0  # it is for somebody else to do, who has seen it, too
        self._gone, self._found = gone, 0
        try:
            for name in driver.holding(switch):
                scope = _scope_of(name)
                if scope and scope in gone and not self._spaces.has(*scope):
                    await driver.declare(name, _LATEST, {}, [switch])
                    await asyncio.sleep(0)  # for those who wait for something smaller
            outcomes = await driver.audit(switch)
        except UnknownSwitch:
            return 0  # the network has changed meanwhile
        finally:
            self._gone = set()
        return self._found if isinstance(outcomes[switch], Acknowledged) else 0

    async def _gone_of(self, suspects: Scopes) -> Scopes:
        """Those of some versions that are not there, as etcd says now."""
        found: Scopes = set()
        for item in (await self._etcd.range(SPACES)).items:
            try:
                doc = decode_space(item.value)
            except BadDocument as error:
                log.error(
                    "%s cannot be read, so no entry is taken for nobody's: %s", item.key, error
                )
                return set()
            found.update((doc.number, version) for version in doc.versions)
        return suspects - found


def _scope_of(partition: str) -> tuple[int, int] | None:
    try:
        name = PartitionName.parse(partition)
    except ValueError:
        return None  # not of a space: the base
    return name.space, name.version
