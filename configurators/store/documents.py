"""Stored documents as bytes: msgpack arrays of the fields, in the order of the model.

Fields may be added at the end of a struct with a default: older bytes can still be read then.
"""

from typing import TypeAlias, TypeVar

from msgspec import DecodeError, ValidationError, msgpack

from configurators.store.etcd.errors import StoreError
from configurators.store.model import (
    Connections,
    KeyUse,
    MapPlan,
    Move,
    NetworkDoc,
    Process,
    Record,
    SpaceDoc,
    SpaceKeys,
    Wanted,
    WorkerKind,
)
from configurators.store.retention import Group

Document: TypeAlias = (
    Record
    | SpaceDoc
    | SpaceKeys
    | NetworkDoc
    | Process
    | KeyUse
    | Group
    | Move
    | MapPlan
    | Wanted
    | Connections
)
Wires: TypeAlias = dict[str, tuple[str, int]]
"""Where applications reach each host of an emulated network: address and port."""
Delays: TypeAlias = dict[WorkerKind, dict[str, str]]
"""Why workers that should start or end have not done so yet, by kind and id."""
RejectedHosts: TypeAlias = tuple[str, ...]
"""The MACs of hosts that an operator has rejected, the last one at the end."""
D = TypeVar("D")


class BadDocument(StoreError):
    """The bytes under a key are not the document that belongs there."""


_encoder = msgpack.Encoder()
_records = msgpack.Decoder(Record)
_spaces = msgpack.Decoder(SpaceDoc)
_space_keys = msgpack.Decoder(SpaceKeys)
_networks = msgpack.Decoder(NetworkDoc)
_processes = msgpack.Decoder(Process)
_moves = msgpack.Decoder(Move)
_plans = msgpack.Decoder(MapPlan)
_key_uses = msgpack.Decoder(KeyUse)
_groups = msgpack.Decoder(Group)
_wires = msgpack.Decoder(Wires)
_wanted = msgpack.Decoder(Wanted)
_connections = msgpack.Decoder(Connections)
_delays = msgpack.Decoder(Delays)
_rejected_hosts = msgpack.Decoder(RejectedHosts)


def encode(document: Document | Wires | Delays | RejectedHosts) -> bytes:
    """The bytes to be stored."""
    return _encoder.encode(document)


def decode_record(data: bytes) -> Record:
    """A record; BadDocument if the bytes are not one."""
    return _decoded(_records, data)


def decode_space(data: bytes) -> SpaceDoc:
    """A space; BadDocument if the bytes are not one."""
    return _decoded(_spaces, data)


def decode_space_keys(data: bytes) -> SpaceKeys:
    """The secrets of a space; BadDocument if the bytes are something else."""
    return _decoded(_space_keys, data)


def decode_network(data: bytes) -> NetworkDoc:
    """A network; BadDocument if the bytes are not one."""
    return _decoded(_networks, data)


def decode_process(data: bytes) -> Process:
    """A process; BadDocument if the bytes are not one."""
    return _decoded(_processes, data)


def decode_move(data: bytes) -> Move:
    """The move of a partition; BadDocument if the bytes are not one."""
    return _decoded(_moves, data)


def decode_plan(data: bytes) -> MapPlan:
    """The plan for a partition map; BadDocument if the bytes are not one."""
    return _decoded(_plans, data)


def decode_key_use(data: bytes) -> KeyUse:
    """The use of an idempotency key; BadDocument if the bytes are not one."""
    return _decoded(_key_uses, data)


def decode_group(data: bytes) -> Group:
    """A group of keys that expire together; BadDocument if the bytes are not one."""
    return _decoded(_groups, data)


def decode_wires(data: bytes) -> Wires:
    """Where each host is reached; BadDocument if the bytes are something else."""
    return _decoded(_wires, data)


def decode_rejected_hosts(data: bytes) -> RejectedHosts:
    """The MACs of rejected hosts; BadDocument if the bytes are something else."""
    return _decoded(_rejected_hosts, data)


def decode_wanted(data: bytes) -> Wanted:
    """How many workers of a kind are wanted; BadDocument if the bytes are something else."""
    return _decoded(_wanted, data)


def decode_connections(data: bytes) -> Connections:
    """The switches of a southbound process; BadDocument if the bytes are something else."""
    return _decoded(_connections, data)


def decode_delays(data: bytes) -> Delays:
    """Why workers have not started or ended; BadDocument if the bytes are something else."""
    return _decoded(_delays, data)


def _decoded(decoder: msgpack.Decoder[D], data: bytes) -> D:
    try:
        return decoder.decode(data)
    except (DecodeError, ValidationError) as error:
        raise BadDocument(
            f"{len(data)} stored bytes cannot be read ({error}); were they written by a newer"
            " version of dzflow, or by something else?"
        ) from None
