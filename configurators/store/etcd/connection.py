"""Connections to the members of etcd: TLS, tokens, time limits, and failover to another member.

aetcd provides the generated messages and stubs; the channels are gRPC's. gRPC's errors end here.
"""

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import grpc
from aetcd import rpc
from msgspec import Struct

from configurators.store.etcd.direct_calls import DirectCalls
from configurators.store.etcd.endpoints import ReachableSocket, socket_path
from configurators.store.etcd.errors import (
    StoreRefused,
    StoreUnavailable,
    Verdict,
    is_tls_trouble,
    judge,
)

T = TypeVar("T")
Metadata = Sequence[tuple[str, str]]

PING_EVERY, PING_TIMEOUT = 10.0, 6.0
"""Seconds until a silent member gets a ping, and until it counts as gone without an answer.

They are for streams, which have no time limit. etcd allows one ping in 5 s.
"""

_LARGEST = 64 << 20  # bytes of a message
_OPTIONS: list[tuple[str, int]] = [
    ("grpc.max_receive_message_length", _LARGEST),
    ("grpc.max_send_message_length", _LARGEST),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # A member may come back at another address of its name. The default is 30 s.
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
]
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5  # seconds between rounds over all members


class Access(Struct, frozen=True):
    """How etcd is reached. With any of the three files (PEM), TLS is used."""

    endpoints: tuple[str, ...]  # host:port, or unix:PATH
    prefix: str = "dzflow/"
    user: str | None = None
    password: str | None = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    timeout: float = 10.0  # seconds for every call, all attempts together

    def __repr__(self) -> str:
        return f"Access({self.endpoints!r}, {self.prefix!r}, {self.user!r})"  # no password

    @property
    def tls(self) -> bool:
        """Whether the connection uses TLS."""
        return bool(self.ca or self.cert or self.key)


class Member:
    """One endpoint: its channel and stubs. A unix socket has direct calls for keys."""

    def __init__(self, endpoint: str, credentials: grpc.ChannelCredentials | None) -> None:
        self.endpoint = endpoint
        path = socket_path(endpoint)
        self._socket = ReachableSocket(path) if path is not None else None
        target = endpoint if self._socket is None else self._socket.target
        patience = int(1000 * PING_TIMEOUT)
        options = [
            *_OPTIONS,
            ("grpc.keepalive_time_ms", int(1000 * PING_EVERY)),
            ("grpc.keepalive_timeout_ms", patience),
            ("grpc.http2.ping_timeout_ms", patience),
        ]
        if credentials is None:
            self.channel = grpc.aio.insecure_channel(target, options=options)
        else:
            self.channel = grpc.aio.secure_channel(target, credentials, options=options)
        self._direct = None if self._socket is None else DirectCalls(self._socket, _LARGEST)
        self.kv: Any = rpc.KVStub(self.channel) if self._direct is None else self._direct
        self.watch: Any = rpc.WatchStub(self.channel)
        self.leases: Any = rpc.LeaseStub(self.channel)
        self.auth: Any = rpc.AuthStub(self.channel)
        self.maintenance: Any = rpc.MaintenanceStub(self.channel)

    @property
    def connected(self) -> bool:
        """Whether the member is connected, so that a call is sent at once."""
        return bool(self.channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.READY)

    @property
    def writable(self) -> bool:
        """Whether a call of the key-value service is sent at once."""
        return self.connected if self._direct is None else self._direct.connected

    async def close(self) -> None:
        """Close the channel."""
        if self._direct is not None:
            self._direct.close()
        await self.channel.close()
        if self._socket is not None:
            self._socket.close()


Invoke = Callable[[Member, Metadata, float], Awaitable[T]]
"""Makes a call to a member, with this metadata and time limit in seconds."""


_HAS_LEADER: Metadata = (("hasleader", "true"),)
_NO_USER = "user name is empty"


class _Failed(Exception):
    """An attempt failed."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.reason)
        self.verdict = verdict


class EtcdConnection:
    """All members, and the one that is used now. Belongs to one event loop."""

    def __init__(self, access: Access, monotonic: Callable[[], float] = time.monotonic) -> None:
        if not access.endpoints:
            raise StoreRefused("no endpoints of etcd are given")
        self.access = access
        self.monotonic = monotonic
        self.closed = False
        credentials = _credentials(access)
        self.members = [Member(endpoint, credentials) for endpoint in access.endpoints]
        self._at = 0
        self._proven: Member | None = None  # has answered since it is the one that is used
        self._accepted = False  # a member has answered at least once
        self._token: str | None = None
        self._renewing = asyncio.Lock()

    async def close(self) -> None:
        """Close all channels; calls in progress end with StoreUnavailable."""
        self.closed = True
        for member in self.members:
            await member.close()

    @property
    def member(self) -> Member:
        """The member that is used now."""
        return self.members[self._at]

    def leave(self, member: Member) -> None:
        """Use another member from now on, unless another one is used already."""
        if self.member is member:
            self._proven = None
            self._at = (self._at + 1) % len(self.members)

    async def call(self, invoke: Invoke[T], repeatable: bool, limit: float | None = None) -> T:
        """The answer of a member to a call; StoreError if there is none within the time limit.

        A call that is not repeatable is sent again only if it was certainly not carried out.
        """
        timeout = self.access.timeout if limit is None else limit
        deadline = self.monotonic() + timeout
        share = timeout / len(self.members) if len(self.members) > 1 else timeout
        pause = _SHORTEST_PAUSE
        troubles: dict[str, str] = {}
        tokens = 0
        while True:
            member = self.member
            left = deadline - self.monotonic()
            try:
                return await self._attempt(member, invoke, repeatable, share, left)
            except _Failed as failed:
                verdict = failed.verdict
            if verdict.error is not None:
                raise verdict.error
            if verdict.outcome == "perhaps" and not repeatable:
                self.leave(member)
                raise self._unavailable({member.endpoint: verdict.reason}, maybe_applied=True)
            troubles[member.endpoint] = verdict.reason
            if verdict.outcome == "token" and tokens < 2 * len(self.members):
                tokens += 1
                continue  # the next attempt fetches a token
            self.leave(member)
            if self._never_will(troubles):
                raise StoreRefused(
                    f"no connection by TLS; check ca, cert and key: {_listed(troubles)}"
                )
            if self._at == 0:  # all members were tried
                if self.monotonic() + pause >= deadline:
                    raise self._unavailable(troubles)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            elif self.monotonic() >= deadline:
                raise self._unavailable(troubles)

    async def _attempt(
        self, member: Member, invoke: Invoke[T], repeatable: bool, share: float, left: float
    ) -> T:
        if self.closed:
            raise StoreUnavailable("this connection to etcd was closed")
        patience = max(0.001, min(left, share))
        metadata: Metadata = _HAS_LEADER
        sent = False
        try:
            metadata = await self.metadata(member, patience)
            if not repeatable and not (member is self._proven and member.writable):
                await self._prove(member, metadata, patience)
            sent = True
            value = await invoke(member, metadata, patience if repeatable else max(0.001, left))
            self._proven = member
            self._accepted = True
            return value
        except grpc.aio.AioRpcError as error:
            verdict = self.judge(error, metadata)
            if verdict.outcome == "perhaps" and not sent:
                verdict = Verdict("never", verdict.reason)
            raise _Failed(verdict) from None
        except asyncio.InvalidStateError:  # raised by gRPC if a stream has ended before the write
            raise _Failed(Verdict("perhaps", "the connection was lost")) from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self.closed and not (task is not None and task.cancelling()):
                raise StoreUnavailable(
                    "this connection to etcd was closed", maybe_applied=sent and not repeatable
                ) from None
            raise

    async def metadata(self, member: Member, patience: float) -> Metadata:
        """The metadata of a call: that the member must have a leader, and the token, if any."""
        if self.access.user is None:
            return _HAS_LEADER
        if self._token is None:
            async with self._renewing:
                if self._token is None:
                    self._token = await self._authenticate(member, patience)
        return (*_HAS_LEADER, ("token", self._token)) if self._token else _HAS_LEADER

    def forget_token(self, metadata: Metadata) -> None:
        """Fetch a new token for the next call, unless this metadata has an older one."""
        used = next((value for key, value in metadata if key == "token"), "")
        if used == self._token:
            self._token = None

    def judge(self, error: grpc.aio.AioRpcError, metadata: Metadata) -> Verdict:
        """What a failed call means; the next one fetches a new token if that is needed."""
        began = self.access.user is not None and _NO_USER in (error.details() or "")
        if began:  # authentication was switched on after we had asked for a token
            verdict = Verdict("token", "etcd asks for a password now")
        else:
            verdict = judge(error.code(), error.details())
        if verdict.outcome == "token":
            self.forget_token(metadata)
        return verdict

    async def _authenticate(self, member: Member, patience: float) -> str:
        request = rpc.AuthenticateRequest(
            name=self.access.user, password=self.access.password or ""
        )
        try:
            answer = await member.auth.Authenticate(request, timeout=patience, metadata=_HAS_LEADER)
        except grpc.aio.AioRpcError as error:
            if "authentication is not enabled" in (error.details() or ""):
                return ""
            raise
        return str(answer.token)

    async def _prove(self, member: Member, metadata: Metadata, patience: float) -> None:
        """Wait until a member is connected and has a leader that answers; AioRpcError if not.

        It is needed for calls that must not be sent twice: without a connection, a timeout could
        mean "never sent" or "no answer", and a call forwarded to a dead leader is lost.
        """
        request = rpc.RangeRequest(key=(self.access.prefix + "check").encode(), count_only=True)
        try:
            await member.kv.Range(request, timeout=patience, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            if error.code() != grpc.StatusCode.PERMISSION_DENIED:
                raise
            # A user that may not read this key may still write others.

    def _never_will(self, troubles: dict[str, str]) -> bool:
        """Whether TLS keeps all members from being reached, which no retry can help."""
        everywhere = len(troubles) == len(self.members)
        return (
            everywhere
            and not self._accepted
            and all(is_tls_trouble(reason) for reason in troubles.values())
        )

    def _unavailable(
        self, troubles: dict[str, str], maybe_applied: bool = False
    ) -> StoreUnavailable:
        closed = any("Socket closed" in reason for reason in troubles.values())
        hint = " If it uses TLS, give ca, cert and key." if closed and not self.access.tls else ""
        doubt = " The write may have been carried out." if maybe_applied else ""
        return StoreUnavailable(
            "etcd does not answer; check that it runs and can be reached:"
            f" {_listed(troubles)}.{hint}{doubt}",
            maybe_applied,
        )


def _credentials(access: Access) -> grpc.ChannelCredentials | None:
    if not access.tls:
        return None
    try:
        # The errors of ssl about unusable files say more than those of gRPC.
        context = ssl.create_default_context(cafile=access.ca)
        if access.cert or access.key:
            context.load_cert_chain(access.cert or "", access.key)
        ca, key, cert = (
            Path(name).read_bytes() if name else None
            for name in (access.ca, access.key or access.cert, access.cert)
        )
    except (OSError, ssl.SSLError) as error:
        raise StoreRefused(
            f"the files for TLS to etcd (ca={access.ca}, cert={access.cert}, key={access.key})"
            f" cannot be used: {error}"
        ) from None
    return grpc.ssl_channel_credentials(ca, key, cert)


def _listed(troubles: dict[str, str]) -> str:
    return "; ".join(f"{endpoint}: {reason}" for endpoint, reason in troubles.items())
