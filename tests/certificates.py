"""Certificates for tests of TLS: an authority, and one certificate that it signed.

`make_as_written` makes those of a page of the documentation.
"""

import os
import re
import ssl
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_HOW_TO = Path(__file__).parents[1] / "docs/how-to"
_CURVE = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
_MAKE: list[str | Path] = ["openssl", "req", "-x509", *_CURVE, "-days", "2"]


class Keys(NamedTuple):
    """Files in PEM form."""

    authority: Path
    certificate: Path
    key: Path

    def server(self) -> ssl.SSLContext:
        """The context of a server that requires a client certificate."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self.authority)
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(self.certificate, self.key)
        return context

    def client(self) -> ssl.SSLContext:
        """The context of a client that connects to 127.0.0.1 with its certificate."""
        context = ssl.create_default_context(cafile=self.authority)
        context.load_cert_chain(self.certificate, self.key)
        return context


def make_as_written(page: str, folder: Path) -> Path:
    """Run the commands of a how-to page in a folder; give the folder that they make."""
    text = (_HOW_TO / page).read_text()
    (commands,) = re.findall(r"^```bash\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        ["bash", "-euc", commands],
        cwd=folder,
        env={**os.environ, "PATH": path},
        check=True,
        capture_output=True,
    )
    return folder / "certs"


def make_keys(folder: Path) -> Keys:
    """Make an authority and a certificate for 127.0.0.1 in a folder."""
    authority = folder / "authority.pem"
    usage = ["-addext", "keyUsage=critical,keyCertSign"]
    _run([*_MAKE, "-subj", "/CN=authority", *usage, "-keyout", _key(authority), "-out", authority])
    return sign(authority, "dzflow", ["IP:127.0.0.1"])


def sign(authority: Path, name: str, alternative_names: Iterable[str]) -> Keys:
    """Make another certificate of an authority, with subject alternative names."""
    certificate = authority.with_name(f"{name}.pem")
    signed_by: list[str | Path] = ["-CA", authority, "-CAkey", _key(authority)]
    extensions = ["-addext", "basicConstraints=CA:FALSE"]
    if names := ",".join(alternative_names):
        extensions += ["-addext", f"subjectAltName={names}"]
    made: list[str | Path] = ["-keyout", _key(certificate), "-out", certificate]
    _run([*_MAKE, "-subj", f"/CN={name}", *signed_by, *extensions, *made])
    return Keys(authority, certificate, _key(certificate))


def _key(certificate: Path) -> Path:
    return certificate.with_suffix(".key")


def _run(command: list[str | Path]) -> None:
    subprocess.run(command, check=True, capture_output=True)
