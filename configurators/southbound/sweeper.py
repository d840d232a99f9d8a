"""Removes the entries of deleted spaces that no configurator has cleared.

A configurator clears a partition when its space, or a version of the space, is deleted. But it may
die before it is done, and in mode `sea` the partition may have no owner at all. So a southbound
process that has seen a version being deleted in etcd removes what switches still hold of it, after
a while. It leaves versions alone that it has never seen: etcd may have been lost, and be restored
later.
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
from sdn.network.topology import UnknownSwitch
from sdn.outcomes import Acknowledged
from sdn.tables.flows import FlowEntry
from sdn.tables.shadow import NOBODY

log = logging.getLogger(__name__)

_REST, _LONGEST_REST = 9, 5.0  # times as long as comparing a switch took; at most so many seconds
_LATEST = 1 << 63  # an epoch that no fence is above

Scopes = set[tuple[int, int]]
"""Numbers of spaces, each with a version."""

Switches = Callable[[], Collection[str]]
"""The switches that this process is responsible for now."""


class Sweeper:
    """Finds entries of deleted spaces, and has them removed from this process's switches.

    Configurators have `after` seconds to clear the entries themselves.
    """

    def __init__(self, etcd: Etcd, spaces: Spaces, after: float, retry: float = 0.5) -> None:
        self._etcd = etcd
        self._spaces = spaces
        self._after = after
        self._retry = retry
        self._deleted: Scopes = set()  # versions that this process has seen being deleted
        self._suspects: Scopes = set()  # of these, those that a switch may have entries of
        self._sweeping: Scopes = set()  # those that a switch is being compared for
        self._found = 0  # entries of these versions on that switch
        self._wake = asyncio.Event()

    def partition_of(self, entry: FlowEntry) -> str | tuple[str, ...] | None:
        """The partitions of an entry that a switch has; None if they are not known (yet)."""
        if found := self._spaces.partitions_beside(entry):
            return found
        scope = self._scope(entry)
        if scope is None or self._spaces.has(*scope):
            return None
        if scope in self._sweeping:
            self._found += 1
            return NOBODY
        if scope in self._deleted:
            self._suspect({scope})
        return None

    def changed(self, before: Scopes) -> None:
        """Note that spaces were changed or deleted; before, there were these versions."""
        there = self._spaces.scopes()
        self._deleted -= there
        if gone := before - there:
            asyncio.get_running_loop().call_later(self._after, self._expire, gone)

    async def run(self, driver: SwitchDriver, switches: Switches) -> None:
        """Remove entries of deleted versions whenever switches may have some, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._sweep(driver, switches)
            except StoreError as error:
                log.warning("cannot find out which spaces were deleted, retrying: %s", error)
                self._wake.set()
                await asyncio.sleep(self._retry)

    def _expire(self, gone: Scopes) -> None:
        """The time of configurators to clear these versions is over."""
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

    async def _sweep(self, driver: SwitchDriver, switches: Switches) -> None:
        """Compare all switches because of the suspects: slowly, one after the other."""
        suspects, self._suspects = self._suspects, set()
        clock = asyncio.get_running_loop().time
        removed = 0
        try:
            for switch in sorted(switches()):
                # Each time: a version that exists again by now may have entries, too.
                if not (gone := await self._still_deleted(suspects)):
                    break
                if switch not in switches():
                    continue  # the process that has it now has seen the deletion, too
                began = clock()
                removed += await self._clear(driver, switch, gone)
                await asyncio.sleep(min(_REST * (clock() - began), _LONGEST_REST))
        except StoreError:
            self._suspects |= suspects
            raise
        finally:
            if removed:
                log.warning("%d entries of deleted spaces were removed", removed)

    async def _clear(self, driver: SwitchDriver, switch: str, gone: Scopes) -> int:
        """Remove what a switch holds of deleted versions; returns how many entries."""
        self._sweeping, self._found = gone, 0
        try:
            for name in driver.holding(switch):
                scope = _scope_of(name)
                if scope and scope in gone and not self._spaces.has(*scope):
                    await driver.declare(name, _LATEST, {}, [switch])
                    await asyncio.sleep(0)  # let smaller work through
            outcomes = await driver.audit(switch)
        except UnknownSwitch:
            return 0  # the network has changed meanwhile
        finally:
            self._sweeping = set()
        return self._found if isinstance(outcomes[switch], Acknowledged) else 0

    async def _still_deleted(self, suspects: Scopes) -> Scopes:
        """Those of some versions that etcd does not have now; none if a space is unreadable."""
        found: Scopes = set()
        for item in (await self._etcd.range(SPACES)).items:
            try:
                doc = decode_space(item.value)
            except BadDocument as error:
                log.error("%s cannot be read, so no entry is removed: %s", item.key, error)
                return set()
            found.update((doc.number, version) for version in doc.versions)
        return suspects - found


def _scope_of(partition: str) -> tuple[int, int] | None:
    try:
        name = PartitionName.parse(partition)
    except ValueError:
        return None  # the base, which belongs to no space
    return name.space, name.version
