"""Idempotency keys: a call that is repeated under its key does nothing new."""

import asyncio
import hashlib
from math import inf
from typing import Any

from msgspec import msgpack

from configurators.store.documents import decode_key_use, encode
from configurators.store.etcd.client import Etcd, Get, LeaseGone, Put, StoreUnavailable, absent
from configurators.store.keys import KEYS, REMOVED_UNTIL
from configurators.store.model import KeyUse
from configurators.store.upkeep import SharedLeases
from dispatcher.errors import Conflict

_TRIES = 5
_PAUSE = 0.2


def fingerprint(action: str, content: Any) -> bytes:
    """A digest of a call: equal calls have equal ones, different calls different ones."""
    try:
        text = msgpack.encode([action, content], order="deterministic")
    except (OverflowError, UnicodeEncodeError, TypeError, RecursionError):
        # Some element is refused anyway; calls that differ in others still need different digests.
        text = repr([action, content]).encode(errors="surrogatepass")
    return hashlib.sha256(text).digest()


def key_name(who: str, key: str) -> str:
    """The key in etcd for an idempotency key; each caller has its own."""
    caller = who.encode(errors="surrogatepass")
    text = len(caller).to_bytes(4, "big") + caller + key.encode(errors="surrogatepass")
    return KEYS + hashlib.sha256(text).hexdigest()


async def removed_until(etcd: Etcd) -> float:
    """Records that finished before this time may have been removed early, to make room.

    The time is stored before records are removed. So a caller that finds no finished record, and
    then reads the time, knows whether there may have been one. A full etcd cannot store it: then
    the time is deleted instead, and all records may have been removed until there is one again.
    """
    found = await etcd.get(REMOVED_UNTIL)
    return float(found.value) if found else inf


async def claim(etcd: Etcd, leases: SharedLeases, name: str, use: KeyUse) -> KeyUse | None:
    """Use a key for a call.

    None if the key was new; otherwise its earlier use by an equal call. Conflict if the earlier
    call was another one.
    """
    value = encode(use)
    uncertain = False
    for attempt in range(_TRIES):
        try:
            put = Put(name, value, await leases.current(1, len(name) + len(value)))
            result = await etcd.transact([absent(name)], [put], [Get(name)])
        except (StoreUnavailable, LeaseGone) as error:
            if attempt == _TRIES - 1:
                raise
            if isinstance(error, StoreUnavailable):
                uncertain |= error.maybe_applied
            else:
                leases.forget()
            await asyncio.sleep(_PAUSE)
            continue
        if result.succeeded:
            return None
        known = decode_key_use(result.gets[0][0].value)
        if known.fingerprint != use.fingerprint:
            raise Conflict(
                "this idempotency key was used for another call; use a new key for a new call",
                "key-reused",
            )
        return None if uncertain and known == use else known
    raise AssertionError("the last attempt returns or raises")
