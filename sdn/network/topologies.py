"""Topologies by name: the shapes that `--topology` knows, and files."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from sdn.network.topology import Host, Link, Switch, Topology, TopologyError
from sdn.network.topology_file import JSON_SUFFIX, YAML_SUFFIXES, FreePorts, load_topology

MAX_SWITCHES = 4_096
MAX_HOSTS = 16_384

_NAME = re.compile(r"([a-z-]+):([0-9]+(?:,[0-9]+)*)")


class UnknownTopology(TopologyError):
    """No topology has this name."""


class TopologyTooLarge(TopologyError):
    """A topology is asked for with more switches or hosts than are allowed."""


def topology(name: str) -> Topology:
    """The topology of this name: `ring:5`, `fat-tree:10`, … or the path of a file.

    Switches are s1, s2, … with their number as dpid, hosts h1, h2, …; the ports of a switch count
    from 1, first those to switches, then those to hosts.
    """
    if Path(name).suffix.lower() in (*YAML_SUFFIXES, JSON_SUFFIX):
        return load_topology(name)
    if match := _NAME.fullmatch(name):
        # Longer numbers are too large anyway, and Python refuses to read endless ones.
        sizes = tuple(int(size) if len(size) <= 9 else 10**9 for size in match[2].split(","))
        match match[1], sizes:
            case "line", (length,) if length >= 1:
                return _line(length)
            case "ring", (length,) if length >= 3:
                return _ring(length)
            case "tree", (depth, fanout) if depth >= 1 and fanout >= 1:
                return _tree(depth, fanout)
            case "fat-tree", (10,):
                return _fat_tree(2, 2, 2, 2, (range(1, 3), range(1, 3)))
            case "fat-tree", (102,):
                return _fat_tree(6, 16, 4, 1, (range(1, 4), range(4, 7)))
    raise UnknownTopology(
        f"there is no topology {name[:64]!r}; there are line:N, ring:N (N from 3),"
        " tree:DEPTH,FANOUT, fat-tree:10, fat-tree:102,"
        " and the path of a file that ends in .yaml, .yml or .json"
    )


def _line(length: int) -> Topology:
    _check_size(length)
    return _build(length, ((n, n + 1) for n in range(1, length)), range(1, length + 1))


def _ring(length: int) -> Topology:
    _check_size(length)
    links = ((n, n % length + 1) for n in range(1, length + 1))
    return _build(length, links, range(1, length + 1))


def _tree(depth: int, fanout: int) -> Topology:
    switches, level = 0, 1
    for _ in range(depth):
        switches += level
        level *= fanout
        # Inside the loop, before the numbers grow beyond all bounds.
        _check_size(switches)
    _check_size(switches, hosts=level)

    links: list[tuple[int, int]] = []
    hosts: list[int] = []
    # Numbered as Mininet does it: a switch, then all below its first child, and so on.
    pending = [(0, 1)]
    number = 0
    while pending:
        parent, level = pending.pop()
        number += 1
        if parent:
            links.append((parent, number))
        if level == depth:
            hosts += [number] * fanout
        else:
            pending += [(number, level + 1)] * fanout
    return _build(switches, links, hosts)


def _fat_tree(
    cores: int, pods: int, edges: int, hosts: int, uplinks: tuple[range, ...]
) -> Topology:
    """Pods of so many edge switches, each with so many hosts, below one aggregation per uplink."""
    aggregations = len(uplinks)
    links: list[tuple[int, int]] = []
    for pod in range(pods):
        first = cores + pod * aggregations + 1
        above = range(first, first + aggregations)
        first = cores + pods * aggregations + pod * edges + 1
        below = range(first, first + edges)
        links += [(core, up) for up, ours in zip(above, uplinks, strict=True) for core in ours]
        links += [(up, edge) for edge in below for up in above]
    first_edge = cores + pods * aggregations + 1
    switches = first_edge - 1 + pods * edges
    homes = [edge for edge in range(first_edge, switches + 1) for _ in range(hosts)]
    return _build(switches, links, homes)


def _build(switches: int, links: Iterable[tuple[int, int]], homes: Iterable[int]) -> Topology:
    """So many switches, linked as said, and a host at each of the homes; ports as they come."""
    ports = FreePorts()
    return Topology.build(
        [Switch(f"s{n}", n) for n in range(1, switches + 1)],
        [Link(f"s{a}", ports.take(f"s{a}"), f"s{b}", ports.take(f"s{b}")) for a, b in links],
        [Host(f"h{i}", f"s{n}", ports.take(f"s{n}")) for i, n in enumerate(homes, 1)],
    )


def _check_size(switches: int, hosts: int = 0) -> None:
    if switches > MAX_SWITCHES or hosts > MAX_HOSTS:
        raise TopologyTooLarge(
            f"at most {MAX_SWITCHES:,} switches and {MAX_HOSTS:,} hosts; choose smaller numbers"
        )
