"""The keys of etcd, all below the prefix of the installation.

| key | value |
| --- | --- |
| `spaces/NAME` | `SpaceDoc` |
| `numbers/NUMBER` | the name of the space with this number; kept for a while after its deletion |
| `event-keys/NUMBER` | `SpaceKeys` of the space with this number, if its events carry tags |
| `network` | `NetworkDoc` |
| `records/SPACE/ID` | `Record`; SPACE is the number in hexadecimal, as in the id |
| `finished/SPACE/ID` | `Record` that was removed or has failed; kept for a while (leased) |
| `ttl/ID` | when a record with a ttl expires, as a decimal number |
| `owners/PARTITION` | the configurator's id; the key's mod revision is the epoch (mode `sna`) |
| `moves/PARTITION` | `Move`, while a partition goes to another configurator (mode `sna`) |
| `plans/NUMBER` | `MapPlan` of the space with this number: the last one, running or ended |
| `locks/PARTITION/LEASE` | the id of a configurator that has the lock, or waits for it |
| `clean/PARTITION` | by an owner that released its lock with nothing in progress; see `CleanMark` |
| `journal/PARTITION/EPOCH.N` | tasks that were done under a lock, until records say the same |
| `cuts/PARTITION` | the last key that was dropped from the partition's journal |
| `keys/HASH` | `KeyUse` of an idempotency key (leased) |
| `groups/LEASE` | `Group` of finished records or idempotency keys that share this lease (leased) |
| `removed-until` | finished records of before this time may have been removed early (absent: all) |
| `dispatchers/ID`, `configurators/ID`, `southbound/ID` | `Process`, leased: gone when it dies |
| `wanted/configurators`, `wanted/southbound` | `Wanted`: how many workers there should be |
| `connections/ID` | `Connections` of a southbound process, leased like its registration |
| `generation` | put to get a new generation: the revision of the put |
| `wires` | where applications reach each host of an emulated network: host -> [address, port] |
| `rejected-hosts` | MACs of hosts that an operator has rejected, the last one at the end |
| `leader` | the id of the API process whose monitor acts, leased; see `monitor/leader.py` |
| `job` | the last run of the scheduled Spark job, as JSON: `JobState` in `monitor/jobs/state.py` |
| `ray` | `Process` that started or joined Ray and watches over the workers, leased |
| `delays` | why workers have not started or ended yet: kind -> id -> reason, leased like `ray` |

The global name of a partition is `SPACE.VERSION/LEAF`, as in `1f.0/3-0.7-x`.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from configurators.store.model import RecordKind, WorkerKind
from dzflow.errors import BadInput

SPACES = "spaces/"
NUMBERS = "numbers/"
EVENT_KEYS = "event-keys/"
NETWORK = "network"
RECORDS = "records/"
FINISHED = "finished/"
TTL = "ttl/"
OWNERS = "owners/"
MOVES = "moves/"
PLANS = "plans/"
LOCKS = "locks/"
CLEAN = "clean/"
JOURNAL = "journal/"
CUTS = "cuts/"
KEYS = "keys/"
GROUPS = "groups/"
REMOVED_UNTIL = "removed-until"
DISPATCHERS = "dispatchers/"
CONFIGURATORS = "configurators/"
SOUTHBOUND = "southbound/"
WANTED = "wanted/"
CONNECTIONS = "connections/"
GENERATION = "generation"
WIRES = "wires"
REJECTED_HOSTS = "rejected-hosts"
LEADER = "leader"
JOB = "job"
RAY = "ray"
DELAYS = "delays"

LETTERS: dict[RecordKind, str] = {"subscription": "s", "advertisement": "a"}
"""The first letter of the ids of each kind."""

# The ids of records: kind, number of the space, and a random part.
_RECORD_ID = re.compile(r"[as][0-9a-f]{1,3}-[0-9a-f]{16}")


class BadRecordId(BadInput):
    """A text that cannot be the id of a record."""


class PartitionName(NamedTuple):
    """The global name of a partition: space, index version, leaf of its partition map."""

    space: int
    version: int
    leaf: str

    def __str__(self) -> str:
        return f"{self.space:x}.{self.version}/{self.leaf}"

    @classmethod
    def parse(cls, text: str) -> "PartitionName":
        """The name from its text form; ValueError if the text is none."""
        scope, _, leaf = text.partition("/")
        space, _, version = scope.partition(".")
        return cls(int(space, 16), int(version), leaf)


def new_record_id(kind: RecordKind, space: int, new_id: Callable[[int], str]) -> str:
    """A unique id for a record of a space; `new_id` gives a random text for a number of bytes."""
    return f"{LETTERS[kind]}{space:x}-{new_id(8)}"


def is_record_id(text: str) -> bool:
    """Whether a text can be the id of a record."""
    return _RECORD_ID.fullmatch(text) is not None


def record_key(record_id: str, finished: bool = False) -> str:
    """The key of a record; BadRecordId if no record can have this id."""
    if not is_record_id(record_id):
        raise BadRecordId(f"{record_id[:32]!r} is not the id of a subscription or advertisement")
    space = record_id[1:].partition("-")[0]
    return f"{FINISHED if finished else RECORDS}{space}/{record_id}"


def ttl_key(record_id: str) -> str:
    """The key that says when a record expires."""
    return TTL + record_id


def group_key(lease: int) -> str:
    """The key of a group of keys that share a lease."""
    return f"{GROUPS}{lease:x}"


def wanted_key(kind: WorkerKind) -> str:
    """The key of how many workers of a kind there should be."""
    return WANTED + kind


def owner_key(partition: str) -> str:
    """The key of a partition's owner."""
    return OWNERS + partition


def move_key(partition: str) -> str:
    """The key of a partition's move to another configurator."""
    return MOVES + partition


def moves_of_space(space: int) -> str:
    """The prefix of the moves of a space's partitions, in all versions."""
    return f"{MOVES}{space:x}."


def plan_key(space: int) -> str:
    """The key of the plan for the partition map of a space."""
    return f"{PLANS}{space:x}"


def owners_of_space(space: int) -> str:
    """The prefix of the owners of a space's partitions, in all versions."""
    return f"{OWNERS}{space:x}."


def locks_of(partition: str) -> str:
    """The prefix of the keys of all processes that have a partition's lock or wait for it."""
    return f"{LOCKS}{partition}/"


def journal_of(partition: str) -> str:
    """The prefix of a partition's journal."""
    return f"{JOURNAL}{partition}/"


def history_of(space: int, version: int | None = None) -> list[str]:
    """The prefixes of what owners in mode `sea` store for partitions of a space, or one version."""
    under = f"{space:x}." if version is None else f"{space:x}.{version}/"
    return [kind + under for kind in (CLEAN, JOURNAL, CUTS)]
