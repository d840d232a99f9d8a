"""The datapath ids that a switch's certificate names.

A certificate names a datapath id by a URI among its subject alternative names: `of:` and the 16
hexadecimal digits of the id, as ONOS writes it. It may name several.
"""

import re
from collections.abc import Mapping
from typing import Any

_NAME = re.compile(r"of:([0-9a-fA-F]{16})\Z")


def dpid_name(dpid: int) -> str:
    """The URI by which a certificate names a datapath id."""
    return f"of:{dpid:016x}"


def named_dpids(certificate: Mapping[str, Any]) -> frozenset[int]:
    """The datapath ids that a certificate names, given as `ssl.SSLSocket.getpeercert` does."""
    return frozenset(
        int(found[1], 16)
        for kind, value in certificate.get("subjectAltName", ())
        if kind == "URI" and (found := _NAME.match(value))
    )
