"""Which certificates an installation needs, without I/O.

Each border has an authority of its own: who holds a certificate for one of them is nobody at the
others. A switch cannot pose as a process of the service, nor a process as a client of etcd.
"""

import re
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from typing import Literal

from cryptography import x509
from msgspec import Struct

from api.certs.issuing import Subject
from dzflow.errors import BadInput
from sdn.openflow.connections.certificates import dpid_name

Border = Literal["api", "openflow", "streams", "etcd"]
BORDERS: tuple[Border, ...] = ("api", "openflow", "streams", "etcd")

SERVICE = "service"
SOUTHBOUND = "southbound"
MEMBER, CLIENT = "member", "client"
ETCD_USER = "dzflow"
"""etcd takes the name in a client's certificate for its user, if it logs in by no other."""

_RESERVED = frozenset({"ca", SOUTHBOUND})
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_DNS = re.compile(rf"(\*\.)?{_LABEL}(\.{_LABEL})*\.?")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class BadCertificateRequest(BadInput):
    """Certificates cannot be made as asked; the message says why."""


class WantedCertificate(Struct, frozen=True):
    """A certificate to make: the authority that signs it, its name among the files, its subject."""

    border: Border
    file: str
    subject: Subject


def wanted_certificates(
    service: Sequence[str], etcd: Sequence[str], switches: Sequence[str]
) -> list[WantedCertificate]:
    """The certificates for a service and for etcd at these names and addresses, and for switches.

    Each of `switches` is such as `rack1=1,2`: a name, and the datapath ids that the certificate
    names. BadCertificateRequest if anything is wrong with them.
    """
    wanted: list[WantedCertificate] = []
    if service:
        names = _general_names(service)
        both = ("server", "client")
        wanted += [
            WantedCertificate("api", SERVICE, Subject("dzflow", names, ("server",))),
            WantedCertificate("openflow", SOUTHBOUND, Subject(SOUTHBOUND, names, ("server",))),
            WantedCertificate("streams", SERVICE, Subject("dzflow streams", names, both)),
        ]
    if etcd:
        member = Subject("etcd", _general_names(etcd), ("server", "client"))
        wanted += [
            WantedCertificate("etcd", MEMBER, member),
            WantedCertificate("etcd", CLIENT, Subject(ETCD_USER, (), ("client",))),
        ]
    wanted += [_of_switches(text) for text in switches]
    if not wanted:
        raise BadCertificateRequest("nothing to make; give --service, --etcd or --switches")
    files = [(each.border, each.file) for each in wanted]
    for border, file in files:
        if files.count((border, file)) > 1:
            raise BadCertificateRequest(f"--switches: {file} is given twice")
    return wanted


def _of_switches(text: str) -> WantedCertificate:
    name, _, ids = text.partition("=")
    if not _FILE.fullmatch(name) or not ids or name in _RESERVED:
        raise BadCertificateRequest(
            f"--switches {text!r}: give a name and datapath ids, such as rack1=1,2;"
            f" the name is for files, and not one of {', '.join(sorted(_RESERVED))}"
        )
    dpids = dict.fromkeys(_dpid(text, each.strip()) for each in ids.split(","))
    names = [x509.UniformResourceIdentifier(dpid_name(dpid)) for dpid in dpids]
    return WantedCertificate("openflow", name, Subject(name, names, ("client",)))


def _dpid(text: str, given: str) -> int:
    """A datapath id, in decimal, after 0x, or in 16 hexadecimal digits as switches print it."""
    hexadecimal = re.fullmatch(r"(?:of:|0x)([0-9a-fA-F]{1,16})|([0-9a-fA-F]{16})", given)
    if hexadecimal:
        return int(hexadecimal[1] or hexadecimal[2], 16)
    if re.fullmatch("[0-9]{1,20}", given) and int(given) < 1 << 64:
        return int(given)
    raise BadCertificateRequest(
        f"--switches {text!r}: {given!r} is not a datapath id, such as 1, 0x1 or 0000000000000001"
    )


def _general_names(given: Iterable[str]) -> list[x509.GeneralName]:
    return [_general_name(name) for name in dict.fromkeys(given)]


def _general_name(name: str) -> x509.GeneralName:
    try:
        address = ip_address(name)
    except ValueError:
        address = None
    if address is not None and "%" not in name:  # a zone means nothing on other machines
        return x509.IPAddress(address)
    if len(name) > 253 or not _DNS.fullmatch(name):
        raise BadCertificateRequest(f"{name!r} is not an IP address, and not the name of a machine")
    return x509.DNSName(name)
