"""The sockets of the API: the parent binds them, so that a port in use is reported at once."""

import errno
import socket as sockets
from contextlib import ExitStack

from dzflow.errors import DzflowError


class PortTaken(DzflowError):
    """The API cannot listen where it should."""


def bind(host: str, port: int, count: int, option: str = "--port") -> list[sockets.socket]:
    """`count` sockets at one address; the kernel spreads connections over them.

    They do not listen yet. PortTaken if the address cannot be used; it names the `option` to
    change.
    """
    with ExitStack() as made:
        # Without SO_REUSEPORT at first, which would also share the port with other programs.
        first = made.enter_context(_bound(host, port, option, shared=False))
        at, number = first.getsockname()[:2]
        if count == 1:
            found = [first]
        else:
            first.close()
            found = [
                made.enter_context(_bound(at, number, option, shared=True)) for _ in range(count)
            ]
        made.pop_all()
        return found


def _bound(host: str, port: int, option: str, shared: bool) -> sockets.socket:
    try:
        family, *_, address = sockets.getaddrinfo(
            host, port, type=sockets.SOCK_STREAM, flags=sockets.AI_PASSIVE
        )[0]
        made = sockets.socket(family, sockets.SOCK_STREAM)
    except OSError as error:
        raise PortTaken(f"cannot listen at {host}: {error.strerror}") from None
    try:
        made.setsockopt(sockets.SOL_SOCKET, sockets.SO_REUSEADDR, 1)
        if shared:
            made.setsockopt(sockets.SOL_SOCKET, sockets.SO_REUSEPORT, 1)
        made.bind(address)
    except OSError as error:
        made.close()
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(
                f"port {port} of {host} is in use; stop what uses it, or choose another {option}"
            ) from None
        raise PortTaken(f"cannot listen at {host}, port {port}: {error.strerror}") from None
    return made
