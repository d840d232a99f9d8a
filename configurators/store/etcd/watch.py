"""Watches: the changes under a prefix, across lost connections and members."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from typing import Any

import grpc
from aetcd import rpc
from msgspec import Struct

from configurators.store.etcd.connection import EtcdConnection, Metadata
from configurators.store.etcd.errors import (
    Compacted,
    StoreRefused,
    StoreUnavailable,
    is_bad_token,
)
from configurators.store.etcd.operations import end_of

_log = logging.getLogger(__name__)

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0  # seconds before another attempt


class WatchEvent(Struct, frozen=True, gc=False):
    """A key has a new value, or was deleted (None); `revision` is that of the change."""

    key: str
    value: bytes | None
    revision: int


class WatchBatch(Struct, frozen=True):
    """Changes in order; no others have happened up to the revision."""

    events: list[WatchEvent]
    revision: int


async def changes(
    connection: EtcdConnection, prefix: str, after: int
) -> AsyncGenerator[WatchBatch, None]:
    """Yield what changed after a revision, each change once; reconnects after a lost connection.

    Compacted if etcd no longer keeps the next changes; StoreRefused if etcd does not permit it.
    """
    key = (connection.access.prefix + prefix).encode()
    skip = len(connection.access.prefix.encode())
    seen = after
    pause = _SHORTEST_PAUSE
    refusals = 0
    while True:
        if connection.closed:
            raise StoreUnavailable("this connection to etcd was closed")
        member = connection.member
        reason = "the stream ended"
        call: Any = None
        metadata: Metadata = ()
        try:
            metadata = await connection.metadata(member, connection.access.timeout)
            call = member.watch.Watch(metadata=metadata)
            create = rpc.WatchCreateRequest(
                key=key,
                range_end=end_of(key),
                start_revision=seen + 1,
                progress_notify=True,
                fragment=True,
            )
            await call.write(rpc.WatchRequest(create_request=create))
            fragments: list[WatchEvent] = []
            while (answer := await _next(connection, call)) is not None:
                if answer.canceled:
                    if answer.compact_revision:
                        raise Compacted(
                            f"etcd has compacted what came after revision {seen}; the oldest that"
                            f" it keeps is {answer.compact_revision}"
                        )
                    reason = answer.cancel_reason or "cancelled by etcd"
                    if is_bad_token(reason):
                        connection.forget_token(metadata)
                    elif "permission denied" in reason:
                        # Some versions say the same about a token that has expired.
                        connection.forget_token(metadata)
                        refusals += 1
                        if refusals > 1:
                            raise StoreRefused(f"etcd does not let us watch {prefix}: {reason}")
                    break
                if answer.created:
                    continue
                refusals = 0
                pause = _SHORTEST_PAUSE
                # A restored member may send changes that another member has sent before.
                fragments += [
                    _change(skip, event) for event in answer.events if event.kv.mod_revision > seen
                ]
                if answer.fragment:
                    continue
                if fragments:
                    # Not the header's revision: etcd may be ahead of these changes.
                    seen = fragments[-1].revision
                    batch, fragments = WatchBatch(fragments, seen), []
                    yield batch
                elif answer.header.revision > seen:
                    seen = answer.header.revision  # a progress notification
        except grpc.aio.AioRpcError as error:
            verdict = connection.judge(error, metadata)
            if verdict.error is not None:
                raise verdict.error from None
            reason = verdict.reason
            connection.leave(member)  # it may be connected, but have no leader
        except asyncio.InvalidStateError:  # raised by gRPC if a stream has ended before the write
            reason = "the connection was lost"
        finally:
            if call is not None:
                call.cancel()
        if connection.closed:
            continue
        _log.info("the watch of %s at %s ended, reconnecting: %s", prefix, member.endpoint, reason)
        if not member.connected:
            connection.leave(member)
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


async def _next(connection: EtcdConnection, call: Any) -> Any | None:
    """The next answer, None at the end of the stream."""
    try:
        answer = await call.read()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if connection.closed and not (task is not None and task.cancelling()):
            return None
        raise
    return None if answer is grpc.aio.EOF else answer


def _change(skip: int, event: Any) -> WatchEvent:
    kv = event.kv
    value = kv.value if event.type == 0 else None
    return WatchEvent(kv.key[skip:].decode(), value, kv.mod_revision)
