"""A configurator that starts claims the partitions whose owner keys name it."""

import asyncio
import logging

from configurators.store.etcd.client import Etcd, Put, StoreError, unchanged
from configurators.store.keys import OWNERS

log = logging.getLogger(__name__)

_AT_ONCE = 100  # keys in one transaction
_RETRY = 0.5  # seconds


async def claim(etcd: Etcd, owner: str) -> tuple[dict[str, int], int]:
    """Write all keys again that name this owner: each gets a new revision, which is its epoch.

    Returns the epoch of each partition, and the revision after which to follow the owner keys.
    """
    while True:
        try:
            page = await etcd.range(OWNERS)
            mine = [item for item in page.items if item.value == owner.encode()]
            ours: dict[str, int] = {}
            for at in range(0, len(mine), _AT_ONCE):
                some = mine[at : at + _AT_ONCE]
                compares = [unchanged(item.key, item.revision) for item in some]
                result = await etcd.transact(compares, [Put(i.key, i.value) for i in some])
                if not result.succeeded:
                    break
                ours |= {item.key.removeprefix(OWNERS): result.revision for item in some}
            if len(ours) == len(mine):
                return ours, page.revision
        except StoreError as error:
            log.warning("partitions cannot be claimed: %s", error)
            await asyncio.sleep(_RETRY)
