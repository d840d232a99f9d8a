"""Encodes and decodes the frequent messages: flow-mods, group-mods, barriers, statistics."""

from sdn.openflow.protocol.decode import (
    decode_flow_mod,
    decode_flow_stats,
    decode_group_descs,
    decode_group_mod,
)
from sdn.openflow.protocol.encode import (
    NotEncodable,
    barrier,
    encode_flow_stats,
    encode_group_ops,
    encode_ops,
    encode_removals,
)

__all__ = [
    "NotEncodable",
    "barrier",
    "decode_flow_mod",
    "decode_flow_stats",
    "decode_group_descs",
    "decode_group_mod",
    "encode_flow_stats",
    "encode_group_ops",
    "encode_ops",
    "encode_removals",
]
