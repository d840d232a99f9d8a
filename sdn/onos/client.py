"""The ONOS client: blocking HTTP requests in a few threads, awaited by the driver."""

import asyncio
import queue
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Literal, TypeVar
from urllib.parse import quote

import msgspec
import requests
from msgspec import Struct
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError

from dzflow.errors import BadInput, DzflowError

T = TypeVar("T")
Gate = Callable[[], None]
"""Called immediately before a change is sent; raises to prevent it."""

_API = "/onos/v1"  # the path of the REST interface
_CHUNK = 1 << 16
_SHOWN = 200  # characters of an answer that an error shows
_JSON = {"Content-Type": "application/json", "Accept": "application/json"}


class OnosError(DzflowError):
    """ONOS cannot be used as it is."""


class OnosUnreachable(OnosError):
    """No answer from ONOS in time; it is unknown whether ONOS has received the request."""


class OnosUnauthorized(OnosError):
    """ONOS does not accept user and password."""


class OnosRefused(OnosError):
    """ONOS refuses a request; nothing of it was done."""


class OnosNotFound(OnosError):
    """ONOS does not have the requested object."""


class OnosBroken(OnosError):
    """ONOS failed, or its answer makes no sense."""


class OnosAccess(Struct, frozen=True):
    """Where ONOS is and how it is called; all times are in seconds.

    `url` is the address of ONOS, with or without the path `/onos/v1`.
    `verify` is the file with the certificates to trust for https, or whether to check at all.
    """

    url: str
    user: str
    password: str
    verify: bool | str = True
    connect: float = 3.0
    read: float = 10.0  # for the next piece of an answer
    whole: float = 60.0  # for all of it
    largest: int = 1 << 28  # bytes
    calls: int = 4  # at the same time
    attempts: int = 3  # for requests that change nothing
    retry: float = 0.2

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise BadInput(f"{self.url!r} is no address like http://127.0.0.1:8181")
        if min(self.calls, self.attempts) < 1:
            raise BadInput("at least one call and one attempt are needed")

    def __repr__(self) -> str:
        return f"OnosAccess({self.url!r}, {self.user!r})"  # without the password


class OnosClient:
    """Talks to one ONOS; `close` it."""

    def __init__(self, access: OnosAccess) -> None:
        self._access = access
        self._base = access.url.rstrip("/").removesuffix(_API).rstrip("/") + _API + "/"
        self._pool = ThreadPoolExecutor(access.calls, thread_name_prefix="onos")
        # A session is not thread-safe, so each call takes one out.
        self._sessions: queue.SimpleQueue[requests.Session] = queue.SimpleQueue()
        for _ in range(access.calls):
            self._sessions.put(_session(access))
        self._free = asyncio.Semaphore(access.calls)
        self._writing: dict[str, set[Future[bytes]]] = {}

    async def get(self, *path: str, parse: Callable[[bytes], T]) -> T:
        """Send a GET request; it is tried several times, because it changes nothing."""
        attempt = 1
        while True:
            try:
                async with self._free:
                    asked = self._pool.submit(lambda: parse(self._exchange("GET", path)))
                    return await asyncio.wrap_future(asked)
            except (OnosUnreachable, OnosBroken):
                if attempt >= self._access.attempts:
                    raise
            await asyncio.sleep(self._access.retry * attempt)
            attempt += 1

    async def write(
        self,
        method: Literal["POST", "DELETE"],
        *path: str,
        body: bytes,
        gate: Gate,
        owner: str,
        params: dict[str, str] | None = None,
    ) -> None:
        """Send a change once; `gate` is called immediately before.

        `owner` is the partition of the change, for `settled`.
        """

        def send() -> bytes:
            gate()
            return self._exchange(method, path, body, params)

        noted = self._writing.setdefault(owner, set())
        async with self._free:
            future = self._pool.submit(send)
            noted.add(future)
            future.add_done_callback(noted.discard)
            try:
                await asyncio.shield(asyncio.wrap_future(future))
            except asyncio.CancelledError:
                # The next request must not overtake this one, which cannot be cancelled any more.
                await _finished(future)
                raise

    async def settled(self, owner: str) -> None:
        """Wait until no change of an owner is in progress."""
        for future in list(self._writing.get(owner, ())):
            await _finished(future)

    async def close(self) -> None:
        """Wait for calls in progress, which all end in time, and close all connections."""
        await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)
        while not self._sessions.empty():
            self._sessions.get().close()

    # In a thread of the pool.

    def _exchange(
        self,
        method: str,
        path: tuple[str, ...],
        body: bytes | None = None,
        params: dict[str, str] | None = None,
    ) -> bytes:
        url = self._base + "/".join(quote(part, safe=":") for part in path)
        access = self._access
        session = self._sessions.get()
        try:
            with session.request(
                method,
                url,
                params=params,
                data=body,
                timeout=(access.connect, access.read),
                allow_redirects=False,
                stream=True,
            ) as response:
                content = self._content(response)
                return _checked(response.status_code, content, url, access)
        except (requests.RequestException, HTTPError) as error:
            raise OnosUnreachable(
                f"no answer from {url}: {error}; is ONOS running there?"
            ) from error
        finally:
            self._sessions.put(session)

    def _content(self, response: requests.Response) -> bytes:
        # A read time-out, or waiting for a whole chunk, would let an answer drip in for ever.
        deadline = time.monotonic() + self._access.whole
        pieces, size = [], 0
        while piece := response.raw.read1(_CHUNK, decode_content=True):
            pieces.append(piece)
            size += len(piece)
            if size > self._access.largest:
                raise OnosBroken(f"an answer of more than {self._access.largest} bytes")
            if time.monotonic() > deadline:
                raise OnosUnreachable(f"an answer took more than {self._access.whole:g} s")
        return b"".join(pieces)


def parsed(kind: type[T]) -> Callable[[bytes], T]:
    """Reads an answer of a kind; raises OnosBroken if it is none."""
    decoder = msgspec.json.Decoder(kind)

    def parse(content: bytes) -> T:
        try:
            return decoder.decode(content)
        except msgspec.MsgspecError as error:
            raise OnosBroken(f"the answer of ONOS is no {kind.__name__}: {error}") from error

    return parse


async def _finished(future: Future[bytes]) -> None:
    """Wait for a call; unlike a wrapped future, cancelling this does not cancel the call."""
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    future.add_done_callback(lambda _: loop.call_soon_threadsafe(done.set))
    await done.wait()


class _Adapter(HTTPAdapter):
    """Closes its connections when it is closed, not when the last answer is forgotten."""

    def close(self) -> None:
        pools = self.poolmanager.pools
        for key in pools.keys():  # noqa: SIM118 it is no dict
            pool = pools.get(key)
            if pool is not None:
                pool.close()
        super().close()


def _session(access: OnosAccess) -> requests.Session:
    session = requests.Session()
    for prefix in ("http://", "https://"):
        session.mount(prefix, _Adapter(pool_connections=1, pool_maxsize=1))
    session.trust_env = False  # ignore proxies and password files of the environment
    session.auth = (access.user, access.password)
    session.headers.update(_JSON)
    session.verify = access.verify
    return session


def _checked(status: int, content: bytes, url: str, access: OnosAccess) -> bytes:
    if 200 <= status < 300:
        return content
    said = f"{url} answers {status}: {_message(content)}"
    if status in (401, 403):
        raise OnosUnauthorized(f"{said}; check user ({access.user}) and password")
    if status == 404:
        raise OnosNotFound(said)
    if 400 <= status < 500:
        raise OnosRefused(said)
    raise OnosBroken(said)


def _message(content: bytes) -> str:
    try:
        found = msgspec.json.decode(content, type=dict[str, object])
        return str(found["message"])[:_SHOWN]
    except (msgspec.MsgspecError, KeyError):
        return content[:_SHOWN].decode(errors="replace") or "nothing"
