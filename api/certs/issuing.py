"""Issues certificates (X.509, ECDSA with P-256), without I/O."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec import Struct

CLOCKS_DIFFER = timedelta(hours=1)
"""A certificate is valid from this time before it is issued, for machines whose clocks are late."""

Key = ec.EllipticCurvePrivateKey
_USES = {"server": ExtendedKeyUsageOID.SERVER_AUTH, "client": ExtendedKeyUsageOID.CLIENT_AUTH}


class Authority(NamedTuple):
    """A certificate authority: its certificate, and the key that signs with it."""

    certificate: x509.Certificate
    key: Key


class Subject(Struct, frozen=True):
    """Whom a certificate is for, by which names, and on which ends of a connection (`uses`)."""

    name: str
    alternatives: Sequence[x509.GeneralName]
    uses: Sequence[str]


def new_key() -> Key:
    """A new private key."""
    return ec.generate_private_key(ec.SECP256R1())


def make_authority(name: str, now: datetime, lifetime: timedelta) -> Authority:
    """A new authority, which signs certificates of parts and no other authorities."""
    key = new_key()
    subject = _named(name)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = (
        _valid(now, now + lifetime)
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(authority=True), critical=True)
        .add_extension(identifier, critical=False)
    )
    return Authority(builder.sign(key, SHA256()), key)


def issue(
    subject: Subject,
    key: ec.EllipticCurvePublicKey,
    authority: Authority,
    now: datetime,
    lifetime: timedelta,
) -> x509.Certificate:
    """A certificate for the holder of a key. It ends no later than the authority's."""
    issuer = authority.certificate
    builder = (
        _valid(now, min(now + lifetime, issuer.not_valid_after_utc))
        .subject_name(_named(subject.name))
        .issuer_name(issuer.subject)
        .public_key(key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([_USES[use] for use in subject.uses]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()),
            critical=False,
        )
    )
    if subject.alternatives:
        names = x509.SubjectAlternativeName(subject.alternatives)
        builder = builder.add_extension(names, critical=False)
    return builder.sign(authority.key, SHA256())


def reissue(
    old: x509.Certificate, authority: Authority, now: datetime, lifetime: timedelta
) -> x509.Certificate:
    """The same certificate for the same key, with a new term.

    Given an authority's own certificate, it is signed by itself again: what the authority has
    signed stays valid under the new one.
    """
    end = now + lifetime
    if old.subject != old.issuer:
        end = min(end, authority.certificate.not_valid_after_utc)
    builder = (
        _valid(now, end)
        .subject_name(old.subject)
        .issuer_name(authority.certificate.subject)
        .public_key(old.public_key())
    )
    for extension in old.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    return builder.sign(authority.key, SHA256())


def _valid(now: datetime, end: datetime) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCKS_DIFFER)
        .not_valid_after(end)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )
