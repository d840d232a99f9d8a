"""The ways of events through the network as sets of slots.

A slot is a place where a region can have an entry: a leg of a switch on a tree, or the port of a
host where its advertised events are let in. Slots are numbered, and a set of them is an integer
with these bits set. So all the legs that a region contributes to are one number, and what one
region leaves for another to contribute is one operation on two numbers.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import count

from msgspec import Struct

from dzflow.address import MAX_TREE
from dzflow.errors import BadInput
from sdn.network.topology import Leg, ToHost, Topology, ToSwitch
from sdn.network.trees import Tree, legs


class BadTreeNumber(BadInput):
    """A number of a tree that does not fit into an address, or means another tree already."""


class LegSlot(Struct, frozen=True):
    """A leg of a switch, for the events of one tree."""

    tree: int
    switch: str
    leg: Leg


class EdgeSlot(Struct, frozen=True):
    """A port of a host, where its advertised events are let in, on all trees."""

    switch: str
    port: int


Slot = LegSlot | EdgeSlot


class Routes:
    """A topology and the trees of a space, with numbers for hosts and slots.

    `after` continues the numbers of earlier routes, so that sets of slots made with either can be
    compared; a tree may have grown since. Nothing changes afterwards, except that hosts get numbers
    when they are first seen.
    """

    def __init__(
        self, topology: Topology, trees: Mapping[int, Tree], after: "Routes | None" = None
    ) -> None:
        self.topology = topology
        self.trees: dict[int, Tree] = dict(trees)
        for number, tree in trees.items():
            if not 0 <= number <= MAX_TREE:
                raise BadTreeNumber(f"tree number {number} is not within 0 to {MAX_TREE}")
            if after and number in after.trees and not tree.continues(after.trees[number]):
                raise BadTreeNumber(
                    f"number {number} belongs to another tree; a changed tree takes a free number,"
                    " or events under way could loop"
                )
        # Numbers of hosts are only ever added, so routes that follow each other share them.
        self._host_names: list[str] = after._host_names if after else []
        self._host_number: dict[str, int] = after._host_number if after else {}
        self._present = {self.host_number(host.id) for host in topology.hosts}
        self.slots: dict[int, Slot] = {}
        self._slot_number: dict[Slot, int] = {}
        self._number_slots(after)
        self.switch_masks = self._switch_masks()
        self._ways: dict[tuple[int, int], int] = {}  # from several hosts to one
        self._pairs: dict[tuple[int, int], int] = {}  # from one host to one
        self.token = object()
        self.continues = after.token if after else None

    def host_number(self, name: str) -> int:
        """The number of a host, also of one that the topology does not have."""
        number = self._host_number.get(name)
        if number is None:
            number = self._host_number[name] = len(self._host_names)
            self._host_names.append(name)
        return number

    def host_name(self, number: int) -> str:
        """The host of a number."""
        return self._host_names[number]

    def to_host(self, publishers: int, subscriber: int) -> int:
        """The leg slots on the ways from several hosts (a bit each) to one.

        A host that is not in the topology has no ways; nor has one to itself.
        """
        known = self._ways.get((publishers, subscriber))
        if known is None:
            known = 0
            for publisher in bits(publishers & ~(1 << subscriber)):
                known |= self._way(publisher, subscriber)
            if len(self._ways) >= _MAX_WAYS:
                self._ways.clear()
            self._ways[publishers, subscriber] = known
        return known

    def edge(self, host: int) -> int:
        """The slot where a host's events are let in, as a set."""
        if host not in self._present:
            return 0
        at = self.topology.host(self._host_names[host])
        return 1 << self._slot_number[EdgeSlot(at.switch, at.port)]

    def slots_at(self, switches: Iterable[str]) -> int:
        """All slots on some switches, as a set."""
        there = set(switches)
        found = 0
        for number, slot in self.slots.items():
            if slot.switch in there:
                found |= 1 << number
        return found

    def _way(self, publisher: int, subscriber: int) -> int:
        known = self._pairs.get((publisher, subscriber))
        if known is None:
            known = self._pairs[publisher, subscriber] = self._find(publisher, subscriber)
        return known

    def _find(self, publisher: int, subscriber: int) -> int:
        if publisher not in self._present or subscriber not in self._present:
            return 0
        names = self._host_names[publisher], self._host_names[subscriber]
        found = 0
        for number, tree in self.trees.items():
            for switch, leg in legs(self.topology, tree, *names):
                found |= 1 << self._slot_number[LegSlot(number, switch, leg)]
        return found

    def _number_slots(self, after: "Routes | None") -> None:
        known = after._slot_number if after else {}
        taken = set(known.values())
        free = (number for number in count() if number not in taken)
        for slot in self._all_slots():
            number = known.get(slot)
            self._slot_number[slot] = next(free) if number is None else number
        # Slots that these routes no longer have are kept for one change: entries must be deleted
        # there. Their numbers are free again for the routes after these.
        self.slots = {number: slot for slot, number in (known | self._slot_number).items()}

    def _all_slots(self) -> Iterator[Slot]:
        for number, tree in self.trees.items():
            for switch, port in sorted(end for link in tree.links for end in link.ends):
                yield LegSlot(number, switch, ToSwitch(port))
            for host in self.topology.hosts:
                yield LegSlot(number, host.switch, ToHost(host.id))
        for host in self.topology.hosts:
            yield EdgeSlot(host.switch, host.port)

    def _switch_masks(self) -> dict[int, int]:
        """For each leg slot, the set of all leg slots on its switch and tree."""
        together: dict[tuple[int, str], int] = {}
        for number, slot in self.slots.items():
            if isinstance(slot, LegSlot):
                place = slot.tree, slot.switch
                together[place] = together.get(place, 0) | 1 << number
        return {
            number: together[slot.tree, slot.switch]
            for number, slot in self.slots.items()
            if isinstance(slot, LegSlot)
        }


_MAX_WAYS = 1 << 15  # about 7 MB in a network of 64 hosts; a set has a bit for each slot


def bits(number: int) -> Iterator[int]:
    """The places of the bits that are set, lowest first."""
    while number:
        low = number & -number
        yield low.bit_length() - 1
        number ^= low
