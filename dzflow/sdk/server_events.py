"""The control plane's stream of changes: server-sent events, read line by line without I/O."""

from typing import Any, NamedTuple

import msgspec


class ServerEvent(NamedTuple):
    """Something that the control plane told."""

    type: str
    data: Any


class LineReader:
    """Puts events together from lines."""

    def __init__(self) -> None:
        self._type = ""
        self._data: list[str] = []

    def read(self, line: str) -> ServerEvent | None:
        """Take one line, without its end; gives the event that it completes.

        Comments keep the connection alive; what is no JSON is passed over.
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
