"""The parts of transactions and their results; keys are without the installation's prefix.

Messages are built field by field: a transaction has some hundred operations, a hundred times a
second.
"""

from collections.abc import Iterable
from typing import Any, TypeAlias

from aetcd import rpc
from msgspec import Struct


class Stored(Struct, frozen=True, gc=False):
    """A key with its value: `revision` of its last change, `created` of its first."""

    key: str
    value: bytes
    revision: int
    created: int
    lease: int


class KeyPage(Struct, frozen=True):
    """Keys in order, all at one revision. With `more`, other keys follow."""

    items: list[Stored]
    revision: int
    more: bool


class TxnResult(Struct, frozen=True):
    """Which branch was taken, at which revision, and what each `Get` of that branch found."""

    succeeded: bool
    revision: int
    gets: list[list[Stored]]


class Put(Struct, frozen=True, gc=False):
    """Store a value."""

    key: str
    value: bytes
    lease: int = 0


class Delete(Struct, frozen=True, gc=False):
    """Delete a key, or all keys that begin with it."""

    key: str
    prefix: bool = False


class Get(Struct, frozen=True, gc=False):
    """Read a key, or all keys that begin with it, after the operations before this one."""

    key: str
    prefix: bool = False


Op: TypeAlias = Put | Delete | Get


class Compare(Struct, frozen=True, gc=False):
    """A condition; see `unchanged`, `absent` and `none_newer`."""

    key: str
    revision: int
    newest: bool = False  # compare the newest of all keys that begin with `key`


def unchanged(key: str, revision: int) -> Compare:
    """The key was last changed at this revision (0: it does not exist)."""
    return Compare(key, revision)


def absent(key: str) -> Compare:
    """The key does not exist."""
    return Compare(key, 0)


def none_newer(prefix: str, revision: int) -> Compare:
    """No key under the prefix was changed after this revision; holds if there is no such key.

    It does not notice deletions.
    """
    return Compare(prefix, revision, newest=True)


def end_of(prefix: bytes) -> bytes:
    """The end of the range of all keys that begin with the prefix."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes((trimmed[-1] + 1,)) if trimmed else b"\x00"


def range_request(key: bytes, prefix: bool) -> Any:
    """The request that reads a key, or all keys that begin with it."""
    return rpc.RangeRequest(key=key, range_end=end_of(key) if prefix else b"")


def txn_request(
    root: str, compares: Iterable[Compare], then: Iterable[Op], otherwise: Iterable[Op]
) -> Any:
    """The request of a transaction on keys under a root."""
    request = rpc.TxnRequest()
    for compare in compares:
        message = request.compare.add()
        message.key = key = (root + compare.key).encode()
        message.target = rpc.Compare.MOD
        if compare.newest:
            message.range_end = end_of(key)
            message.result = rpc.Compare.LESS
            message.mod_revision = compare.revision + 1
        else:
            message.result = rpc.Compare.EQUAL
            message.mod_revision = compare.revision
    _add(root, request.success, then)
    _add(root, request.failure, otherwise)
    return request


def _add(root: str, messages: Any, ops: Iterable[Op]) -> None:
    for op in ops:
        key = (root + op.key).encode()
        if isinstance(op, Put):
            put = messages.add().request_put
            put.key = key
            put.value = op.value
            put.lease = op.lease
        elif isinstance(op, Delete):
            removal = messages.add().request_delete_range
            removal.key = key
            if op.prefix:
                removal.range_end = end_of(key)
        else:
            messages.add().request_range.CopyFrom(range_request(key, op.prefix))


def txn_result(skip: int, answer: Any) -> TxnResult:
    """The result of a transaction; `skip` is the length of the root in bytes."""
    gets = [
        stored(skip, response.response_range.kvs)
        for response in answer.responses
        if response.HasField("response_range")
    ]
    return TxnResult(answer.succeeded, answer.header.revision, gets)


def stored(skip: int, kvs: Iterable[Any]) -> list[Stored]:
    """The keys that a range request found."""
    return [
        Stored(kv.key[skip:].decode(), kv.value, kv.mod_revision, kv.create_revision, kv.lease)
        for kv in kvs
    ]
