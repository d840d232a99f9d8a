"""TLS for streams: both ends show a certificate that the CA of the installation has signed.

The name in a certificate is not checked, so that one certificate may serve several machines, and
machines may change their addresses. Instead, the handshake (`handshake.py`) binds the token to the
listener's certificate: another holder of a certificate of this CA cannot pose as a listener.
"""

import asyncio
import re
import socket
import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

from dzflow.errors import BadInput
from dzflow.process.connections import ConnectionLimits, ConnectionTable

_FIRST = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


class BadCertificates(BadInput):
    """The files for TLS cannot be used; the message says why."""


class StreamTls:
    """The certificates of one process, loaded from PEM files: for listening and for connecting.

    `certificate` is its own, in DER form.
    """

    def __init__(self, cert: Path, key: Path, ca: Path) -> None:
        """BadCertificates if the files cannot be used."""
        try:
            found = _FIRST.search(cert.read_text())
            if found is None:
                raise BadCertificates(f"{cert} holds no certificate in PEM form")
            self.certificate = ssl.PEM_cert_to_DER_cert(found[0])
            self.server = _context(ssl.PROTOCOL_TLS_SERVER, cert, key, ca)
            self.client = _context(ssl.PROTOCOL_TLS_CLIENT, cert, key, ca)
        except (OSError, ValueError) as error:
            files = f"{cert}, {key}, {ca}"
            raise BadCertificates(f"TLS cannot be used with {files}: {error}") from None
        self.server.num_tickets = 0  # each connection shows its certificates


def _context(kind: Any, cert: Path, key: Path, ca: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(kind)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # see above
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(cert, key)
    context.load_verify_locations(ca)
    return context


class TlsGates:
    """Takes new connections over until their TLS handshakes are complete, and counts them.

    asyncio's servers tell nobody about a connection before that, nor about one that fails.
    """

    def __init__(
        self,
        tls: StreamTls,
        make: Callable[[], asyncio.Protocol],
        timeout: float,
        limits: ConnectionLimits,
        refused: Callable[[str, str], None],
    ) -> None:
        """`make` gives a connection with TLS its protocol.

        `refused` is called with the address and the reason if there is no TLS within `timeout`
        seconds, or if newer connections need the place: when there are too many, the oldest goes.
        """
        self._tls = tls
        self._make = make
        self._timeout = timeout
        self._refused = refused
        self._table: ConnectionTable[asyncio.Task[None]] = ConnectionTable(limits)
        self._waiting: set[asyncio.Task[None]] = set()

    def gate(self) -> asyncio.Protocol:
        """The protocol of a new connection."""
        return _Gate(self)

    def enter(self, transport: asyncio.Transport) -> None:
        """Begin the handshake of a new connection."""
        remote = remote_of(transport)
        # A transport may read at once, and cannot give back what it has read: we go on with the
        # socket alone.
        accepted: socket.socket = transport.get_extra_info("socket").dup()
        transport.abort()
        task = asyncio.get_running_loop().create_task(self._secure(accepted, remote))
        self._waiting.add(task)
        task.add_done_callback(partial(self._ended, accepted, remote))
        evicted = self._table.admit(task, remote.rpartition(":")[0]).evicted
        if evicted is not None:
            evicted.cancel()

    def _ended(self, accepted: socket.socket, remote: str, task: "asyncio.Task[None]") -> None:
        self._waiting.discard(task)
        self._table.remove(task)
        if task.cancelled():
            accepted.close()
            self._refused(remote, "too many connections have not completed the handshake of TLS")

    async def close(self) -> None:
        """Close the connections that are not complete."""
        waiting = list(self._waiting)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    async def _secure(self, accepted: socket.socket, remote: str) -> None:
        accepted.setblocking(False)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._make, accepted, ssl=self._tls.server, ssl_handshake_timeout=self._timeout
            )
        except OSError as error:
            accepted.close()
            self._refused(remote, explain(error) or "it closed the connection before TLS began")


class _Gate(asyncio.Protocol):
    def __init__(self, gates: TlsGates) -> None:
        self._gates = gates

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._gates.enter(cast(asyncio.Transport, transport))


def explain(error: BaseException) -> str:
    """The text of an error, with advice if TLS has failed."""
    text = str(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted; all need one of the CA in streams.ca ({text})"
    # Silent: uvloop has no text if the other end closes the connection during the handshake.
    silent = isinstance(error, ConnectionResetError) and not text
    if isinstance(error, ssl.SSLError) or "SSL handshake" in text or silent:
        text = text or "closed during the handshake"
        return f"TLS failed; give all processes the same kind of [streams] settings ({text})"
    return text


def remote_of(transport: asyncio.BaseTransport) -> str:
    """The address of the other end, for logs."""
    name = transport.get_extra_info("peername")
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else "an unknown address"
