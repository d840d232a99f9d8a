"""Where things are in etcd. All keys begin with the prefix of the installation.

| key | value |
| --- | --- |
| `spaces/NAME` | `SpaceDoc` |
| `numbers/NUMBER` | the name of the space that has this number, also some time after it is gone |
| `network` | `NetworkDoc` |
| `records/SPACE/ID` | `Record`; SPACE is the number in hexadecimal, which the id names, too |
| `finished/SPACE/ID` | `Record` that was removed or has failed; kept for a while (leased) |
| `ttl/ID` | when a record that has a ttl expires, as a decimal number |
| `owners/PARTITION` | the configurator's id; the key's mod revision is the epoch (mode `sna`) |
| `locks/PARTITION/LEASE` | the id of a configurator that has the lock, or waits for it |
| `clean/PARTITION` | left by who released the lock with nothing under way; see `Mark` |
| `journal/PARTITION/EPOCH.N` | tasks that were done under a lock, until records say the same |
| `cuts/PARTITION` | the key of the last that was dropped from the partition's journal |
| `keys/HASH` | `KeyUse` of an idempotency key (leased) |
| `dispatchers/ID`, `configurators/ID`, `southbound/ID` | `Process`, leased: gone when it dies |
| `generation` | put to get a new generation: the put's revision |
| `wires` | where applications reach each host of an emulated network: host -> [address, port] |
| `ray` | `Process` that started or joined Ray and watches over the workers, leased |

The global name of a partition is `SPACE.VERSION/LEAF`, as in `1f.0/3-0.7-x`.
"""

import re
import secrets
from collections.abc import Callable
from typing import NamedTuple

from configurators.store.model import RecordKind
from dzflow.errors import BadInput

SPACES = "spaces/"
NUMBERS = "numbers/"
NETWORK = "network"
RECORDS = "records/"
FINISHED = "finished/"
TTL = "ttl/"
OWNERS = "owners/"
LOCKS = "locks/"
CLEAN = "clean/"
JOURNAL = "journal/"
CUTS = "cuts/"
KEYS = "keys/"
DISPATCHERS = "dispatchers/"
CONFIGURATORS = "configurators/"
SOUTHBOUND = "southbound/"
GENERATION = "generation"
WIRES = "wires"
RAY = "ray"

_RECORD_ID = re.compile(r"[sa][0-9a-f]+-[0-9A-Za-z_-]+")
_LETTER: dict[RecordKind, str] = {"subscription": "s", "advertisement": "a"}


class BadRecordId(BadInput):
    """A text that is not the id of any record."""


class PartitionName(NamedTuple):
    """A partition of all that there are: space, index version, leaf of its partition map."""

    space: int
    version: int
    leaf: str

    def __str__(self) -> str:
        return f"{self.space:x}.{self.version}/{self.leaf}"

    @classmethod
    def parse(cls, text: str) -> "PartitionName":
        """Read the text form."""
        scope, _, leaf = text.partition("/")
        space, _, version = scope.partition(".")
        return cls(int(space, 16), int(version), leaf)


def new_record_id(
    kind: RecordKind, space: int, new_id: Callable[[int], str] = secrets.token_hex
) -> str:
    """An id that nothing else has; it names the space, so that the record can be found."""
    return f"{_LETTER[kind]}{space:x}-{new_id(8)}"


def record_key(record_id: str, finished: bool = False) -> str:
    """The key of a record; BadRecordId if no record can have this id."""
    if len(record_id) > 32 or not _RECORD_ID.fullmatch(record_id):
        raise BadRecordId(f"{record_id[:32]!r} is not the id of a subscription or advertisement")
    space = record_id[1:].partition("-")[0]
    return f"{FINISHED if finished else RECORDS}{space}/{record_id}"


def ttl_key(record_id: str) -> str:
    """The key that says when a record expires."""
    return TTL + record_id


def owner_key(partition: str) -> str:
    """The key of a partition's owner."""
    return OWNERS + partition


def owners_of_space(space: int) -> str:
    """The prefix of the owners of all partitions of a space, in all versions."""
    return f"{OWNERS}{space:x}."


def locks_of(partition: str) -> str:
    """The prefix of the keys of all who have a partition's lock or wait for it."""
    return f"{LOCKS}{partition}/"


def journal_of(partition: str) -> str:
    """The prefix of a partition's journal."""
    return f"{JOURNAL}{partition}/"


def history_of(space: int, version: int | None = None) -> list[str]:
    """The prefixes of what owners in mode `sea` left of partitions of a space, or one version."""
    under = f"{space:x}." if version is None else f"{space:x}.{version}/"
    return [kind + under for kind in (CLEAN, JOURNAL, CUTS)]
