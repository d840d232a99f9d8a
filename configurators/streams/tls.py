"""TLS for streams: both ends show a certificate that the CA of the installation has signed.

The name in a certificate is not checked, so that one certificate may serve several machines, and
machines may change their addresses. Instead, the handshake (`handshake.py`) binds the token to the
listener's certificate: another holder of a certificate of this CA cannot pose as a listener.
"""

import asyncio
import re
import ssl
from pathlib import Path
from typing import Any

from dzflow.errors import BadInput

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


async def secure(
    transport: asyncio.Transport,
    protocol: asyncio.Protocol,
    context: ssl.SSLContext,
    timeout: float,
) -> asyncio.Transport:
    """Wait for the TLS handshake of a connection that was accepted; OSError if it fails."""
    loop = asyncio.get_running_loop()
    try:
        secured = await loop.start_tls(
            transport, protocol, context, server_side=True, ssl_handshake_timeout=timeout
        )
    except BaseException:
        transport.abort()
        raise
    if secured is None:
        raise ConnectionResetError("the other end closed it during the handshake of TLS")
    return secured


def explain(error: BaseException) -> str:
    """The text of an error, with advice if TLS has failed."""
    text = str(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted; all need one of the CA in streams.ca ({text})"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed; give all processes the same kind of [streams] settings ({text})"
    return text


def remote_of(transport: asyncio.BaseTransport) -> str:
    """The address of the other end, for logs."""
    name = transport.get_extra_info("peername")
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else "an unknown address"
