"""Maintenance of etcd as a whole: history, disk space, alarms, and the state of its members."""

from typing import Any

import grpc
from aetcd import rpc
from msgspec import Struct

from configurators.store.etcd.connection import EtcdConnection, Member, Metadata
from configurators.store.etcd.errors import Compacted, StoreError, StoreUnavailable, judge

_SLOW_SECONDS = 300.0  # for calls that may read and write the whole database
_NO_SPACE = "NOSPACE"


class MemberState(Struct, frozen=True):
    """A member that answers; sizes are in bytes, `in_use` without what defragmentation can free.

    With `full`, a member has reached its quota, and all of them refuse writes.
    """

    version: str
    size: int
    in_use: int
    leader: bool
    full: bool = False


class Maintenance:
    """Calls that concern all of etcd, not only our keys."""

    def __init__(self, connection: EtcdConnection) -> None:
        self._connection = connection

    async def revision(self) -> int:
        """The newest revision, of all keys of this etcd."""
        key = (self._connection.access.prefix + "check").encode()

        async def invoke(member: Member, metadata: Metadata, timeout: float) -> Any:
            request = rpc.RangeRequest(key=key)
            return await member.kv.Range(request, timeout=timeout, metadata=metadata)

        return int((await self._connection.call(invoke, repeatable=True)).header.revision)

    async def compact(self, revision: int, physical: bool = False) -> None:
        """Drop the history before a revision. With `physical`, wait until that is done on disk."""

        async def invoke(member: Member, metadata: Metadata, timeout: float) -> Any:
            request = rpc.CompactionRequest(revision=revision, physical=physical)
            return await member.kv.Compact(request, timeout=timeout, metadata=metadata)

        try:
            limit = _SLOW_SECONDS if physical else None
            await self._connection.call(invoke, repeatable=True, limit=limit)
        except Compacted:
            return  # another process has done so

    async def states(self) -> dict[str, MemberState | None]:
        """The state of each endpoint, None for one that does not answer."""
        found: dict[str, MemberState | None] = {}
        for member in self._connection.members:
            timeout = self._connection.access.timeout
            try:
                metadata = await self._connection.metadata(member, timeout)
                answer = await member.maintenance.Status(
                    rpc.StatusRequest(), timeout=timeout, metadata=metadata
                )
            except grpc.aio.AioRpcError:
                found[member.endpoint] = None
                continue
            found[member.endpoint] = MemberState(
                answer.version,
                answer.dbSize,
                answer.dbSizeInUse,
                leader=answer.leader == answer.header.member_id,
                # Asked for in this way, because a call for the alarms is written to etcd's log.
                full=any(_NO_SPACE in error for error in answer.errors),
            )
        return found

    async def disarm(self) -> None:
        """Let etcd take writes again after it ran out of space."""
        raised = await self._alarm(rpc.AlarmRequest(action=rpc.AlarmRequest.GET))
        for alarm in raised.alarms:
            if alarm.alarm == rpc.AlarmType.NOSPACE:
                request = rpc.AlarmRequest(
                    action=rpc.AlarmRequest.DEACTIVATE, memberID=alarm.memberID, alarm=alarm.alarm
                )
                await self._alarm(request)

    async def defragment(self) -> None:
        """Give free space back to the disk, one member after the other, the leader last.

        StoreRefused if etcd's user may not do so. StoreUnavailable if a member does not answer; the
        members before it are done then.
        """
        states = await self.states()
        leads = {endpoint for endpoint, state in states.items() if state and state.leader}
        for member in sorted(self._connection.members, key=lambda it: it.endpoint in leads):
            try:
                metadata = await self._connection.metadata(member, self._connection.access.timeout)
                await member.maintenance.Defragment(
                    rpc.DefragmentRequest(), timeout=_SLOW_SECONDS, metadata=metadata
                )
            except grpc.aio.AioRpcError as error:
                raise _defragmentation_failed(member.endpoint, error) from None

    async def _alarm(self, request: Any) -> Any:
        async def invoke(member: Member, metadata: Metadata, timeout: float) -> Any:
            return await member.maintenance.Alarm(request, timeout=timeout, metadata=metadata)

        return await self._connection.call(invoke, repeatable=True)


def _defragmentation_failed(endpoint: str, error: grpc.aio.AioRpcError) -> StoreError:
    verdict = judge(error.code(), error.details())
    return verdict.error or StoreUnavailable(f"{endpoint} was not defragmented: {verdict.reason}")
