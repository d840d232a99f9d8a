"""What is stored under a prefix of etcd: all of it, and then each change."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator

from msgspec import Struct

from configurators.store.etcd.client import Change, Compacted, Etcd, Page, StoreUnavailable

log = logging.getLogger(__name__)

_PAUSE = 0.5  # seconds before etcd is asked again


class News(Struct, frozen=True):
    """Changes in order. If they are the `whole`, what is not among them is gone."""

    changes: list[Change]
    revision: int
    whole: bool = False


def whole(page: Page) -> News:
    """All keys of a page, as news."""
    changes = [Change(item.key, item.value, item.revision) for item in page.items]
    return News(changes, page.revision, whole=True)


async def follow(etcd: Etcd, prefix: str, after: int | None = None) -> AsyncGenerator[News, None]:
    """All keys under a prefix, then every change, for ever; or changes after a revision only.

    After a long time without etcd, all keys come once more.
    """
    while True:
        try:
            if after is None:
                news = whole(await etcd.range(prefix))
                yield news
                after = news.revision
            async with contextlib.aclosing(etcd.watch(prefix, after)) as batches:
                async for batch in batches:
                    yield News(batch.events, batch.revision)
                    after = batch.revision
        except Compacted:
            log.info("changes under %s were missed; it is read anew", prefix)
            after = None
        except StoreUnavailable as error:
            log.warning("%s cannot be followed: %s", prefix, error)
            await asyncio.sleep(_PAUSE)
