"""A connection without a network: it keeps what is written, and says when it was closed."""

import asyncio
from typing import Any


class FakeTransport:
    """The part of `asyncio.Transport` that our protocols use."""

    def __init__(self, protocol: asyncio.BaseProtocol, peer: str = "127.0.0.1") -> None:
        self.lost = False  # the protocol was told that the connection has ended
        self._protocol = protocol
        self._peer = (peer, 50_000)
        self._written: list[bytes] = []
        self._closing = False

    def take(self) -> bytes:
        """All bytes that were written since the last call."""
        written = b"".join(self._written)
        self._written.clear()
        return written

    def write(self, data: bytes) -> None:
        if not self._closing:
            self._written.append(bytes(data))

    def writelines(self, data: Any) -> None:
        self.write(b"".join(data))

    def close(self) -> None:
        self._end()

    def abort(self) -> None:
        self._end()

    def is_closing(self) -> bool:
        return self._closing

    def can_write_eof(self) -> bool:
        return False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": self._peer, "sockname": ("127.0.0.1", 8080)}.get(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is no limit: nothing waits here."""

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        """The test decides when data comes."""

    def resume_reading(self) -> None:
        """The test decides when data comes."""

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def is_reading(self) -> bool:
        return not self._closing

    def _end(self) -> None:
        """As in asyncio, the protocol hears of the end after it has closed the connection."""
        if not self._closing:
            self._closing = True
            asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        self.lost = True
        if isinstance(self._protocol, asyncio.Protocol):
            self._protocol.connection_lost(None)
