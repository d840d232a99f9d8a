"""Which connections the network policies of a rendering allow."""

from typing import Any

from tests.helm.tool import Manifest, of_kind

Connection = tuple[str, str, int, int]
"""The roles that connect and listen, and the first and the last port."""

WORLD = "world"
"""Everybody, those of the release, too."""


def allowed(objects: tuple[Manifest, ...], direction: str) -> set[Connection]:
    """What the policies of one direction allow, between roles and beyond; DNS is left out."""
    found = set()
    for policy in of_kind(objects, "NetworkPolicy").values():
        role = policy["spec"]["podSelector"]["matchLabels"]["dzflow/role"]
        for rule in policy["spec"][direction]:
            peers = rule.get("from" if direction == "ingress" else "to", [{}])
            for peer in peers:
                other = _role(peer)
                for port in rule["ports"]:
                    first = port["port"]
                    if first == 53:
                        continue
                    ends = first, port.get("endPort", first)
                    pair = (other, role) if direction == "ingress" else (role, other)
                    found.add((*pair, *ends))
    return found


def connections(objects: tuple[Manifest, ...]) -> set[Connection]:
    """The connections between roles that the policies of both allow.

    No block of addresses may be named in them.
    """
    found = set()
    for one, to, *ours in allowed(objects, "egress"):
        for by, other, *theirs in allowed(objects, "ingress"):
            first, last = max(ours[0], theirs[0]), min(ours[1], theirs[1])
            if to in (other, WORLD) and by in (one, WORLD) and first <= last:
                found.add((one, other, first, last))
    return found


def _role(peer: dict[str, Any]) -> str:
    labels: dict[str, str] = peer.get("podSelector", {}).get("matchLabels", {})
    return labels.get("dzflow/role", WORLD)
