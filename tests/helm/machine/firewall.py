"""Network policies, enforced: pods can make only the connections that the policies allow.

Of a connection, the side that makes it is checked, against the policies of both. Attempts to make
other connections fail, and are counted.
"""

from collections import Counter
from collections.abc import Collection

from tests.helm.machine.instance import Instance
from tests.helm.machine.node import Service
from tests.helm.machine.wires import Wires
from tests.helm.policies import connections
from tests.helm.tool import Manifest, of_kind


class Firewall:
    """The policies of a rendering; without any, everything is allowed."""

    def __init__(self, objects: tuple[Manifest, ...], wires: Wires, node: str) -> None:
        """`node` is the address of the node, which policies do not concern."""
        self._wires = wires
        self._node = node
        self._is_on = bool(of_kind(objects, "NetworkPolicy"))
        self._connections = connections(objects)
        self._permitted: dict[str, set[tuple[str, int, int]]] = {}  # by namespace
        self._refused: Counter[str] = Counter()  # by role, of pods that are gone

    def add(self, role: str, network: str) -> None:
        """Restrict the namespace of a new pod."""
        if self._is_on:
            listens = {each[2:] for each in self._connections if each[1] == role}
            self._wires.restrict(network, self._node, listens)
            self._permitted[network] = set()

    def follow(self, instances: Collection[Instance], services: Collection[Service]) -> None:
        """Let the pods that there are reach each other, and Services, as policies allow.

        Addresses are not used again, and a connection to that of a pod that is gone is not refused.
        """
        for each in instances if self._is_on else ():
            new = self._destinations(each.pod.role, instances, services)
            new -= self._permitted[each.network]
            self._wires.permit(each.network, new)
            self._permitted[each.network] |= new

    def _destinations(
        self, role: str, instances: Collection[Instance], services: Collection[Service]
    ) -> set[tuple[str, int, int]]:
        """Where pods of a role may connect to: addresses, with the first and the last port."""
        pairs = {each[1:] for each in self._connections if each[0] == role}
        found = {
            (each.address, first, last)
            for each in instances
            for other, first, last in pairs
            if each.pod.role == other
        }
        roles = {each.name: each.pod.role for each in instances}
        for service in services:
            leads_to = {roles[name] for name in service.pods}
            if any(to in leads_to and first <= service.target <= last for to, first, last in pairs):
                found.add((service.address, service.port, service.port))
        return found

    def remove(self, gone: Instance) -> None:
        """Count what a pod has tried before its namespace is removed."""
        if self._is_on:
            self._refused[gone.pod.role] += self._wires.refused(gone.network)

    def refused(self, instances: Collection[Instance]) -> dict[str, int]:
        """By role, how many connections that no policy allows pods have tried to make."""
        found = Counter(self._refused)
        for each in instances if self._is_on else ():
            found[each.pod.role] += self._wires.refused(each.network)
        return {role: count for role, count in found.items() if count}
