"""Endpoints of etcd: `host:port`, or `unix:PATH` for a unix socket on this machine."""

import os
from pathlib import Path
from urllib.parse import quote

from configurators.store.etcd.errors import StoreRefused

UNIX = "unix:"

LONGEST_PATH = 107
"""Bytes of a socket's path that the kernel accepts."""


def socket_path(endpoint: str) -> Path | None:
    """The path of a unix socket; None if the endpoint is `host:port`."""
    if not endpoint.startswith(UNIX):
        return None
    path = endpoint.removeprefix(UNIX)
    return Path(path[2:] if path.startswith("///") else path)  # gRPC knows both forms


def host_of(endpoint: str) -> str | None:
    """The host of a `host:port`, without the brackets of IPv6; None for a unix socket."""
    if socket_path(endpoint) is not None:
        return None
    return endpoint.rpartition(":")[0].strip("[]")


class ReachableSocket:
    """A unix socket under a path that can be connected to, until it is closed.

    If a path is too long, its folder is opened, and the socket is found through the file
    descriptor. The same helps against commas, which separate addresses for gRPC.
    """

    def __init__(self, path: Path) -> None:
        self._folder: int | None = None
        self.path = str(path)
        if len(os.fsencode(path)) <= LONGEST_PATH and "," not in str(path.parent):
            return
        try:
            self._folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
        except OSError as error:
            raise StoreRefused(
                f"the folder of etcd's socket, {path.parent}, cannot be opened: {error.strerror}"
            ) from None
        self.path = f"/proc/self/fd/{self._folder}/{path.name}"

    @property
    def target(self) -> str:
        """The path as gRPC takes it: any character may be in it."""
        return UNIX + quote(os.fsencode(self.path))

    def close(self) -> None:
        """Close the folder. Connections stay, but new ones cannot be made."""
        folder, self._folder = self._folder, None
        if folder is not None:
            os.close(folder)
