"""The control plane's change feed: server-sent events, parsed line by line, without I/O."""

from typing import Any, NamedTuple

import msgspec


class ServerEvent(NamedTuple):
    """One announcement of the control plane."""

    type: str
    data: Any


class LineReader:
    """Assembles events from lines."""

    def __init__(self) -> None:
        self._type = ""
        self._data: list[str] = []

    def read(self, line: str) -> ServerEvent | None:
        """Add one line, without its line end; returns the event that it completes, if any.

        Comments, which keep the connection alive, and data that is not JSON are ignored.
        """
        if line:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "event":
                self._type = value
            elif name == "data":
                self._data.append(value)
            return None
        kind, data = self._type, "\n".join(self._data)
        self._type, self._data = "", []
        if not data:
            return None
        try:
            return ServerEvent(kind or "message", msgspec.json.decode(data))
        except msgspec.DecodeError:
            return None
