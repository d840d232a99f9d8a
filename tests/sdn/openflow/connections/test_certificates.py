"""The datapath ids that a certificate names."""

import pytest

from sdn.openflow.connections.certificates import dpid_name, named_dpids


def test_a_certificate_names_several_datapath_ids() -> None:
    names = (("URI", dpid_name(1)), ("DNS", "s1"), ("URI", "of:00000000000000Ff"))
    assert named_dpids({"subjectAltName": names}) == {1, 255}


@pytest.mark.parametrize(
    "name",
    [
        ("DNS", dpid_name(1)),
        ("URI", "of:1"),
        ("URI", "of:00000000000000001"),
        ("URI", "of:0000000000000001\n"),
        ("URI", "of:000000000000000 1"),
        ("URI", "xof:0000000000000001"),
        ("URI", "of:0000000000000001,of:0000000000000002"),
        ("URI", "of:*"),
    ],
)
def test_nothing_else_names_one(name: tuple[str, str]) -> None:
    certificate = {"subject": ((("commonName", dpid_name(1)),),), "subjectAltName": (name,)}
    assert named_dpids(certificate) == frozenset()
    assert named_dpids({}) == frozenset()
