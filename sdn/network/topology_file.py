"""Topologies in YAML or JSON files."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from sdn.network.switch_limits import SwitchLimits, limits_alone
from sdn.network.topology import Host, Link, NoSwitches, Switch, Topology, TopologyError

MAX_LABEL = 200  # characters of a switch's label
MAX_FILE_BYTES = 4 * 1024 * 1024
MAX_DEPTH = 32  # of values inside values; a topology needs four
MAX_MEMBERS = MAX_FILE_BYTES // 4  # of all mappings: a file cannot hold more without merges
YAML_SUFFIXES = (".yaml", ".yml")
JSON_SUFFIX = ".json"
SECTIONS = ("switches", "links", "hosts")

T = TypeVar("T")


class BadTopologyFile(TopologyError):
    """A topology file has an error; the message names the place."""


class TopologyFileUnreadable(BadTopologyFile):
    """A topology file is not there, or cannot be opened."""


class TopologyFileTooLarge(BadTopologyFile):
    """A topology file is larger than any sensible one."""


class TopologyFileBroken(BadTopologyFile):
    """A topology file is not YAML or JSON at all."""


class YamlMissing(BadTopologyFile):
    """PyYAML, which reads YAML files, is not installed."""


class _SwitchEntry(SwitchLimits, forbid_unknown_fields=True, frozen=True, kw_only=True):
    id: str
    dpid: int | None = None
    label: Annotated[str, msgspec.Meta(max_length=MAX_LABEL)] = ""


class _LinkEntry(msgspec.Struct, forbid_unknown_fields=True):
    a: str
    b: str
    a_port: int | None = None
    b_port: int | None = None
    lldp: bool = True


class _HostEntry(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    switch: str
    port: int | None = None
    mac: str | None = None
    ipv6: str | None = None


class FreePorts:
    """Hands out the lowest port of a switch that is neither taken nor handed out before."""

    def __init__(self, taken: Iterable[tuple[str, int]] = ()) -> None:
        self._taken = frozenset(taken)
        self._last: defaultdict[str, int] = defaultdict(int)

    def take(self, switch: str) -> int:
        """The next free port of the switch."""
        port = self._last[switch] + 1
        while (switch, port) in self._taken:
            port += 1
        self._last[switch] = port
        return port


def load_topology(path: str | Path) -> Topology:
    """The topology in a YAML or JSON file; raises `BadTopologyFile` with the place of a mistake."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in (*YAML_SUFFIXES, JSON_SUFFIX):
        raise BadTopologyFile(f"{path}: the name must end in .yaml, .yml or .json")
    text = _read(path)
    document = _parse_json(path, text) if suffix == JSON_SUFFIX else _parse_yaml(path, text)
    return parse_topology(document, str(path))


def parse_topology(document: object, source: str = "topology") -> Topology:
    """The topology that the content of a file, or `dump_topology`, describes.

    Dpids and ports that are not given are the lowest free ones, in the order of the document.
    """
    sections = _sections(document, source)
    switches = _switches([_switch(source, i, x) for i, x in enumerate(sections["switches"])])
    link_entries = [_link(source, i, x) for i, x in enumerate(sections["links"])]
    host_entries = [_host(source, i, x) for i, x in enumerate(sections["hosts"])]
    ports = FreePorts(_given_ports(link_entries, host_entries))
    links = [
        Link(
            entry.a,
            ports.take(entry.a) if entry.a_port is None else entry.a_port,
            entry.b,
            ports.take(entry.b) if entry.b_port is None else entry.b_port,
        )
        for entry in link_entries
    ]
    hidden = [link for link, entry in zip(links, link_entries, strict=True) if not entry.lldp]
    hosts = [
        Host(
            entry.id,
            entry.switch,
            ports.take(entry.switch) if entry.port is None else entry.port,
            entry.mac,
            entry.ipv6,
        )
        for entry in host_entries
    ]
    try:
        return Topology.build(switches, links, hosts, unprobed=hidden)
    except TopologyError as error:
        place = _place(error, {"switches": switches, "links": links, "hosts": hosts})
        # A text from the file may have half of a surrogate pair, which cannot be printed.
        text = f"{source}: {place}{error}".encode(errors="backslashreplace").decode()
        raise BadTopologyFile(text, error.element) from error


def dump_topology(topology: Topology) -> dict[str, list[dict[str, Any]]]:
    """The topology as `parse_topology` takes it, with nothing left to choose."""
    switches = [
        {"id": switch.id, "dpid": switch.dpid, **msgspec.to_builtins(switch.limits)}
        | ({"label": switch.label} if switch.label else {})
        for switch in topology.switches
    ]
    links = [
        msgspec.structs.asdict(link) | ({"lldp": False} if link in topology.unprobed else {})
        for link in topology.links
    ]
    hosts = [
        {name: value for name, value in msgspec.structs.asdict(host).items() if value is not None}
        for host in topology.hosts
    ]
    return {"switches": switches, "links": links, "hosts": hosts}


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise TopologyFileUnreadable(f"{path}: there is no such file") from None
    except OSError as error:
        raise TopologyFileUnreadable(f"{path}: cannot be read: {error.strerror}") from error
    if len(content) > MAX_FILE_BYTES:
        raise TopologyFileTooLarge(
            f"{path}: larger than {MAX_FILE_BYTES:,} bytes; is it the right file?"
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise TopologyFileBroken(f"{path}: line {line}: not UTF-8") from error


def _parse_json(path: Path, text: str) -> object:
    try:
        document: object = json.loads(text)
    except json.JSONDecodeError as error:
        raise TopologyFileBroken(f"{path}: line {error.lineno}: {error.msg}") from error
    except ValueError as error:
        raise TopologyFileBroken(f"{path}: {error}") from error
    except RecursionError:
        raise TopologyFileBroken(f"{path}: nested too deeply") from None
    return document


def _parse_yaml(path: Path, text: str) -> object:
    try:
        # Needed for YAML alone; a host does not install it.
        import yaml
    except ImportError:
        raise YamlMissing(
            f"{path}: reading YAML needs PyYAML; install dzflow[control], or give the file as JSON"
        ) from None
    try:
        document: object = yaml.load(text, _bounded_loader(yaml.SafeLoader))  # noqa: S506
    except TopologyFileBroken as error:
        raise TopologyFileBroken(f"{path}: {error}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}: " if mark else ""
        raise TopologyFileBroken(f"{path}: {where}{error.problem or error.context}") from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise TopologyFileBroken(f"{path}: line {line}: {error.reason}") from error
    except (ValueError, LookupError, AttributeError, TypeError) as error:
        # PyYAML raises these for text that looks like a value but is none, such as 2020-13-45.
        raise TopologyFileBroken(f"{path}: a value cannot be understood: {error}") from error
    except RecursionError:
        raise TopologyFileBroken(f"{path}: nested too deeply") from None
    return document


def _bounded_loader(safe_loader: Any) -> Any:
    """PyYAML's safe loader with limits, because a small file can take it very long.

    Its time grows with the square of the depth, and merges (`<<`) can make members explode.
    """

    class Loader(safe_loader):  # type: ignore[misc]
        members = 0
        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            """Called for each value, inside the call for the value that contains it."""
            self.depth += 1
            if self.depth > MAX_DEPTH:
                line = self.get_mark().line + 1
                raise TopologyFileBroken(f"line {line} is nested too deeply")
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

        def flatten_mapping(self, node: Any) -> None:
            """Called for each mapping, and for each one that is merged into another."""
            super().flatten_mapping(node)
            self.members += len(node.value)
            if self.members > MAX_MEMBERS:
                raise TopologyFileBroken(
                    f"line {node.start_mark.line + 1} merges too many members into one another"
                )

    return Loader


def _sections(document: object, source: str) -> dict[str, list[object]]:
    expected = ", ".join(SECTIONS)
    if not isinstance(document, dict):
        raise BadTopologyFile(
            f"{source}: a mapping with {expected} is expected, not {_kind(document)}"
        )
    for name in document:
        if name not in SECTIONS:
            shown = repr(name[:64]) if isinstance(name, str) else _kind(name)
            raise BadTopologyFile(f"{source}: unknown section {shown}; there are {expected}")
    sections: dict[str, list[object]] = {}
    for name in SECTIONS:
        # A section with nothing below it is null in YAML.
        elements = document.get(name)
        if not isinstance(elements, list | None):
            raise BadTopologyFile(f"{source}: {name}: a list is expected, not {_kind(elements)}")
        sections[name] = elements or []
    return sections


def _switch(source: str, index: int, element: object) -> _SwitchEntry:
    if isinstance(element, str):
        return _SwitchEntry(id=element)
    return _entry(f"{source}: switches[{index}]", element, _SwitchEntry, "an id or a mapping")


def _link(source: str, index: int, element: object) -> _LinkEntry:
    place = f"{source}: links[{index}]"
    if isinstance(element, list):
        if len(element) != 2 or not all(isinstance(end, str) for end in element):
            raise BadTopologyFile(f"{place}: a list must be of two switch ids")
        return _LinkEntry(*element)
    return _entry(place, element, _LinkEntry, "two switch ids or a mapping")


def _host(source: str, index: int, element: object) -> _HostEntry:
    return _entry(f"{source}: hosts[{index}]", element, _HostEntry, "a mapping")


def _entry(place: str, element: object, kind: type[T], expected: str) -> T:
    # Values are never shown: with YAML's aliases a small file can hold endlessly large ones.
    if not isinstance(element, dict):
        raise BadTopologyFile(f"{place}: {expected} is expected, not {_kind(element)}")
    try:
        return msgspec.convert(element, kind)
    except msgspec.ValidationError as error:
        hint = "; put text in quotes" if "Expected `str" in str(error) else ""
        raise BadTopologyFile(f"{place}: {error}{hint}") from error
    except UnicodeEncodeError:
        raise BadTopologyFile(
            f"{place}: half of a surrogate pair is not a character; write the character itself"
        ) from None


def _switches(entries: Sequence[_SwitchEntry]) -> list[Switch]:
    given = {entry.dpid for entry in entries}
    free = (dpid for dpid in count(1) if dpid not in given)
    return [
        Switch(x.id, next(free) if x.dpid is None else x.dpid, limits_alone(x), x.label)
        for x in entries
    ]


def _given_ports(
    links: Iterable[_LinkEntry], hosts: Iterable[_HostEntry]
) -> Iterable[tuple[str, int]]:
    ends = [end for x in links for end in ((x.a, x.a_port), (x.b, x.b_port))]
    ends += [(x.switch, x.port) for x in hosts]
    return ((switch, port) for switch, port in ends if port is not None)


def _place(error: TopologyError, sections: dict[str, Sequence[Switch | Link | Host]]) -> str:
    for name, elements in sections.items():
        for index, element in enumerate(elements):
            # Equal elements may be there twice; the error is about one of them.
            if element is error.element:
                return f"{name}[{index}]: "
    return "switches: " if isinstance(error, NoSwitches) else "links: "


def _kind(value: object) -> str:
    return "nothing" if value is None else f"a value of type {type(value).__name__}"
