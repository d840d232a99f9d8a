"""Files that an operator gives to dzflow: topologies and backups."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from configurators.state.network import first_network
from configurators.state.spaces import new_space
from dispatcher.changes.backup_file import Backup, BadBackup, SavedRecord, read_backup
from sdn.network.topologies import topology
from sdn.network.topology import Host
from sdn.network.topology_file import BadTopologyFile, dump_topology, load_topology, parse_topology
from tests.fuzz.mutation import ByteInputs, JsonInputs, Mixed
from tests.fuzz.target import Broken, Probe, Target

# Topologies

_TOPOLOGIES: tuple[Any, ...] = (
    {
        "switches": ["s1", {"id": "s2", "dpid": 7, "rate": 45, "tables": [3, 9]}],
        "links": [["s1", "s2"], {"a": "s1", "a_port": 9, "b": "s2", "b_port": 3}],
        "hosts": [
            {"id": "h1", "switch": "s1"},
            {
                "id": "h2",
                "switch": "s2",
                "port": 5,
                "mac": "02:00:00:00:00:02",
                "ipv6": "fd00::2",
            },
        ],
    },
    {"switches": ["only"]},
    dump_topology(topology("ring:4")),
)
_WORDS: tuple[Any, ...] = ("s1", "s2", "h1", 0, 65_279, 2**32, "02:00:00:00:00:01", "fd00::1", "::")
_YAML = (
    b"switches: [s1, {id: s2, dpid: 7}]\nlinks:\n- [s1, s2]\n- {a: s1, b: s2, a_port: 9}\n"
    b"hosts:\n- id: h1\n  switch: s1\n- {id: h2, switch: s2, mac: '02:00:00:00:00:02'}\n",
    b"switches: &all [s1, s2]\nlinks: [*all]\nhosts: []\n",
    b"base: &b {switch: s1}\nswitches: [s1]\nhosts:\n- <<: *b\n  id: h1\n",
    b'{"switches": ["s1"], "links": null}',
    b"switches:\n  - s1\n---\nswitches: []\n",
)
_YAML_WORDS = (
    *(b"&a ", b"*a", b"<<: *a\n", b"- ", b"? ", b": ", b"!!python/object:os.system ", b"!!binary "),
    *(b"!!set ", b"!!float ", b"2020-13-45", b"0o9", b"1_000", b".inf", b"~", b"|\n  ", b">-\n "),
    *(b"%YAML 1.2\n", b"%TAG ! x:\n", b"\xef\xbb\xbf", b"\xff\xfe", b"\x85", b"[" * 50, b"{" * 50),
    b"a: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\n",
    b"a: &a {x: 1}\nb: &b {<<: [*a,*a,*a,*a,*a,*a,*a,*a]}\n",
)


@contextmanager
def _open_topology(suffix: str) -> Iterator[Probe]:
    with TemporaryDirectory(prefix="dzflow-fuzz-") as folder:
        path = Path(folder) / f"topology{suffix}"

        def probe(data: bytes) -> str:
            path.write_bytes(data)
            made = load_topology(path)
            if parse_topology(dump_topology(made)) != made:
                raise Broken("a topology is another one after it was written and read")
            return f"{len(made.switches)} switches"

        yield probe


TOPOLOGY_JSON = Target(
    name="topology-json",
    border="topology files",
    open=lambda: _open_topology(".json"),
    inputs=lambda random: JsonInputs(random, _TOPOLOGIES, _WORDS),
    refusals=(BadTopologyFile,),
    covers=("sdn.network.topology_file", "sdn.network.topology"),
    share=30,
    block=10_000,
    short=700,
)

TOPOLOGY_YAML = Target(
    name="topology-yaml",
    border="topology files",
    open=lambda: _open_topology(".yaml"),
    inputs=lambda random: Mixed(
        ByteInputs(random, _YAML, _YAML_WORDS), JsonInputs(random, _TOPOLOGIES, _WORDS)
    ),
    refusals=(BadTopologyFile,),
    covers=("sdn.network.topology_file",),
    share=6,
    block=5_000,
    short=300,
)

# Backups

_SCHEMA = {
    "attributes": [
        {"name": "price", "type": "float", "min": 0, "max": 1000},
        {"name": "side", "type": "enum", "values": ["buy", "sell"]},
    ],
    "index": {"kind": "zorder", "budget": 4, "shapes": 4},
}
_MADE = 1_700_000_000.5
_NETWORK = first_network(topology("line:3"), "legs", 1)


def backup() -> dict[str, Any]:
    """A valid backup as JSON: one space, one host, two records."""
    saved = Backup(
        "dzflow backup 1",
        _MADE,
        [new_space("stocks", 2, _SCHEMA, "legs", 2)],
        [Host("h1", "s1", 3)],
        [
            SavedRecord(
                "s2-0123456789abcdef",
                "subscription",
                "h1",
                "stocks",
                {"price": {"gte": 420}},
                _MADE,
                "mine",
                60.0,
            ),
            SavedRecord("a2-0123456789abcdef", "advertisement", "h1", "stocks", "true", _MADE),
        ],
    )
    document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(saved))
    return document


_BACKUP_WORDS: tuple[Any, ...] = (
    *("dzflow backup 1", "stocks", "s2-0123456789abcdef", "subscription", "legs", "lpm", "h1"),
    *(0, -5, 1023, 99_999, 77, -1.0, "x" * 1_000, "h\n1", {"bit": 95}, {"bit": 96}),
)


@contextmanager
def _open_backup() -> Iterator[Probe]:
    def probe(data: bytes) -> str:
        saved = read_backup(data, _NETWORK, max_filter=64 << 10)
        if read_backup(msgspec.json.encode(saved), _NETWORK) != saved:
            raise Broken("a backup is another one after it was written and read")
        return f"{len(saved.spaces)} spaces, {len(saved.records)} records"

    yield probe


def backup_inputs(random: Random) -> JsonInputs:
    """Backups with mistakes."""
    full = backup()
    empty = {**full, "spaces": [], "hosts": [], "records": []}
    return JsonInputs(random, [full, full, empty], _BACKUP_WORDS)


BACKUP = Target(
    name="backups",
    border="backup files",
    open=_open_backup,
    inputs=backup_inputs,
    refusals=(BadBackup,),
    covers=("dispatcher.changes.backup_file", "configurators.state.spaces"),
    share=40,
    block=5_000,
)
