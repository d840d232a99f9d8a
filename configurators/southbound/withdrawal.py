"""Withdraws partitions that the partition map no longer has."""

import asyncio
import logging

from configurators.state.spaces import Spaces, read_space
from configurators.store.documents import BadDocument
from configurators.store.etcd.client import Etcd, StoreUnavailable
from configurators.store.keys import SPACES
from sdn.driver import SwitchDriver
from sdn.fence import StaleEpoch

log = logging.getLogger(__name__)

_RETRY = 0.5  # seconds


async def withdraw(
    etcd: Etcd, driver: SwitchDriver, space: str, partition: str, revision: int
) -> None:
    """Let no former owner in, and expect nothing of a partition that the map lacks at a revision.

    Its entries stay on the switches: they belong to other partitions now, whose owners declare what
    switches should hold of them.

    If there is a later owner, etcd is asked whether a newer map has the partition again. If not,
    that owner has not heard of the change yet, or is to own the partition in a map that follows. So
    its epoch is not refused; as long as the map lacks the partition, its requests are.
    """
    epoch = revision
    while True:
        try:
            await driver.withdraw(partition, epoch)
            return
        except StaleEpoch as stale:
            log.debug("a later owner of %s has come already: %s", partition, stale)
            epoch = stale.current
        if not await _is_gone(etcd, space, partition):
            return


async def _is_gone(etcd: Etcd, space: str, partition: str) -> bool:
    """Whether the map lacks a partition now, or cannot be read; not if the space is deleted."""
    while True:
        try:
            stored = await etcd.get(SPACES + space)
            break
        except StoreUnavailable as error:
            log.warning("cannot find out whether %s is gone, retrying: %s", partition, error)
            await asyncio.sleep(_RETRY)
    if stored is None:
        return False  # the sweeper looks after its entries
    try:
        return Spaces([read_space(space, stored.value)]).recut(partition)
    except BadDocument as error:
        log.error("space %s cannot be read: %s", space, error)
        return True
