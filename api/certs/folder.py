"""The folder with certificates and keys: makes them, lists them, and renews what ends soon.

authority/BORDER.key         the key of an authority; better kept away from all machines
BORDER/ca.pem                its certificate: whom the other side trusts
BORDER/FILE.pem, FILE.key    what one part shows
"""

import fcntl
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from msgspec import Struct

from api.certs.issuing import Authority, Key, issue, make_authority, new_key, reissue
from api.certs.wanted import BORDERS, Border, WantedCertificate
from dzflow.errors import DzflowError
from dzflow.process.private_files import read_private, write_private

AUTHORITIES = "authority"


class CertificateFolderError(DzflowError):
    """The folder cannot be used as asked, and nothing was changed; the message says why."""


class StoredCertificate(Struct, frozen=True):
    """A certificate in the folder. `names` are texts such as `DNS m1` or `URI of:…`."""

    path: Path
    border: Border
    authority: bool
    names: Sequence[str]
    begins: datetime
    ends: datetime

    def ends_within(self, time: timedelta, now: datetime) -> bool:
        """Whether it ends soon, or has ended."""
        return self.ends < now + time


class CertificateFolder:
    """The certificates of an installation; only the owner of the folder can read it."""

    def __init__(self, path: Path, now: datetime) -> None:
        self.path = path
        self._now = now

    def make(
        self, wanted: Sequence[WantedCertificate], lifetime: timedelta, authority_life: timedelta
    ) -> list[Path]:
        """Make certificates with new keys, and authorities that are missing; all new files.

        CertificateFolderError if there is one of these files already.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise _unusable(self.path, error) from None
        with self._locked():
            files = [self.certificate(each.border, each.file) for each in wanted]
            for file in files:
                for path in (file, file.with_suffix(".key")):
                    if path.exists():
                        raise CertificateFolderError(
                            f"{path} exists already; nothing was made. `dzflow certs renew` gives"
                            " certificates a new term; to make one again, move the old files away"
                        )
            made: list[Path] = []
            borders = dict.fromkeys(each.border for each in wanted)
            known = {border: self._valid_authority(border) for border in borders}
            signers: dict[Border, Authority] = {}
            for border, authority in known.items():
                if authority is None:
                    name = f"dzflow {border} authority"
                    authority = make_authority(name, self._now, authority_life)
                    made += self._keep_authority(border, authority)
                signers[border] = authority
            for each, file in zip(wanted, files, strict=True):
                signer, key = signers[each.border], new_key()
                signed = issue(each.subject, key.public_key(), signer, self._now, lifetime)
                _write_key(file.with_suffix(".key"), key)
                _write_certificate(file, signed)
                made += [file.with_suffix(".key"), file]
            return made

    def certificates(self) -> list[StoredCertificate]:
        """All certificates of the folder, an authority before those that it has signed."""
        if not self.path.is_dir():
            raise CertificateFolderError(
                f"there is no folder {self.path}; make it with `dzflow certs make {self.path} …`"
            )
        found = []
        for border in BORDERS:
            ca = self.authority_certificate(border)
            others = sorted(path for path in ca.parent.glob("*.pem") if path != ca)
            found += [_stored(path, border, path == ca) for path in (ca, *others) if path.exists()]
        return found

    def renew(
        self, within: timedelta, lifetime: timedelta, authority_life: timedelta
    ) -> list[Path]:
        """Give a new term to certificates that end within a time; those that were renewed.

        Keys, and names in certificates, stay. So each file is replaced in one step, and old and new
        ones work beside each other.
        """
        with self._locked():
            due = [each for each in self.certificates() if each.ends_within(within, self._now)]
            signers = {each.border: self._signer(each.border) for each in due}
            for each in due:  # authorities are first, which lets what they sign end later
                signer = signers[each.border]
                life = authority_life if each.authority else lifetime
                signed = reissue(_read_certificate(each.path), signer, self._now, life)
                if each.authority:
                    signers[each.border] = signer._replace(certificate=signed)
                _write_certificate(each.path, signed)
            return [each.path for each in due]

    def certificate(self, border: Border, file: str) -> Path:
        """The path of a certificate; its key is beside it."""
        return self.path / border / f"{file}.pem"

    def authority_certificate(self, border: Border) -> Path:
        """The path of an authority's certificate."""
        return self.path / border / "ca.pem"

    def authority_key(self, border: Border) -> Path:
        """The path of an authority's key."""
        return self.path / AUTHORITIES / f"{border}.key"

    def _signer(self, border: Border) -> Authority:
        found = self._known_authority(border)
        if found is None:
            missing = self.authority_certificate(border)
            raise CertificateFolderError(f"{missing} is missing; nothing was renewed")
        return found

    def _valid_authority(self, border: Border) -> Authority | None:
        """The authority of a border, which has not ended; None if it was never made."""
        found = self._known_authority(border)
        if found is not None and found.certificate.not_valid_after_utc <= self._now:
            raise CertificateFolderError(
                f"{self.authority_certificate(border)} has ended; nothing was made. Renew it first:"
                f" `dzflow certs renew {self.path}`"
            )
        return found

    def _known_authority(self, border: Border) -> Authority | None:
        """The authority of a border; None if it was never made."""
        certificate, key = self.authority_certificate(border), self.authority_key(border)
        if not certificate.exists() and not key.exists():
            return None
        for path in (certificate, key):
            if not path.exists():
                raise CertificateFolderError(
                    f"{path} is missing; put it back there, to sign with this authority"
                )
        authority = Authority(_read_certificate(certificate), _read_key(key))
        if authority.certificate.public_key() != authority.key.public_key():
            raise CertificateFolderError(f"{key} is not the key of {certificate}")
        return authority

    def _keep_authority(self, border: Border, authority: Authority) -> list[Path]:
        key, certificate = self.authority_key(border), self.authority_certificate(border)
        _write_key(key, authority.key)
        _write_certificate(certificate, authority.certificate)
        return [key, certificate]

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Nobody else changes the folder meanwhile; refuses one that others could change."""
        try:
            handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise _unusable(self.path, error) from None
        try:
            status = os.fstat(handle)
            if status.st_uid not in (os.geteuid(), 0) or status.st_mode & 0o022:
                raise CertificateFolderError(
                    f"other users can put files into {self.path} (mode"
                    f" {stat.S_IMODE(status.st_mode):04o}); `chmod 700` it, or choose another"
                )
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def _unusable(path: Path, error: OSError) -> CertificateFolderError:
    return CertificateFolderError(f"{path} cannot be used: {error.strerror}")


def _stored(path: Path, border: Border, authority: bool) -> StoredCertificate:
    certificate = _read_certificate(path)
    return StoredCertificate(
        path,
        border,
        authority,
        _names_in(certificate),
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
    )


_KINDS: Mapping[type[x509.GeneralName], str] = {
    x509.DNSName: "DNS",
    x509.IPAddress: "IP",
    x509.UniformResourceIdentifier: "URI",
}


def _names_in(certificate: x509.Certificate) -> list[str]:
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    return [f"{_KINDS.get(type(name), 'other')} {name.value}" for name in extension.value]


def _read_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise CertificateFolderError(f"{path} cannot be read as a certificate: {error}") from None


def _read_key(path: Path) -> Key:
    try:
        key = serialization.load_pem_private_key(read_private(path).encode(), None)
    except (OSError, ValueError, TypeError) as error:
        raise CertificateFolderError(f"{path} cannot be read as a key: {error}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificateFolderError(f"{path} is no key of `dzflow certs`, which are for ECDSA")
    return key


def _write_key(path: Path, key: Key) -> None:
    encoded = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    _write(path, encoded)


def _write_certificate(path: Path, certificate: x509.Certificate) -> None:
    _write(path, certificate.public_bytes(serialization.Encoding.PEM))


def _write(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_private(path, data)
    except OSError as error:
        raise CertificateFolderError(f"{path} cannot be written: {error.strerror}") from None
