"""Network namespaces that reach each other, as the pods of a cluster do."""

import itertools
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

PREFIX = "10.77"


class Wires:
    """A bridge in a namespace of its own, and a namespace for each pod."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._made: list[str] = []
        self._numbers = itertools.count()
        self._hub = f"{name}-hub"

    def connect(self) -> None:
        """Make the bridge."""
        self._add("hub")
        _run("ip", "-n", self._hub, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", self._hub, "link", "set", "bridge", "up")

    def add(self, *addresses: str) -> str:
        """A namespace with these addresses, reached by all others; its name."""
        number = next(self._numbers)
        made = self._add(str(number))
        there = f"p{number}"
        _run("ip", "-n", made, "link", "add", "eth0", "type", "veth", "peer", there)
        _run("ip", "-n", made, "link", "set", there, "netns", self._hub)
        _run("ip", "-n", self._hub, "link", "set", there, "master", "bridge", "up")
        for address in addresses:
            _run("ip", "-n", made, "address", "add", f"{address}/16", "dev", "eth0")
        _run("ip", "-n", made, "link", "set", "eth0", "up")
        return made

    def restrict(self, made: str, node: str, ports: Iterable[tuple[int, int]]) -> None:
        """Refuse all packets from a namespace but those to the node, and answers from these ports.

        Packets that it sends to itself pass. Two things are refused without being counted: UDP,
        because programs connect such sockets to sort addresses, and send nothing; and the address
        where clouds have metadata, which Ray's head asks for, and can do without.
        """
        rules = [
            f"priority 2 ipproto tcp sport {first}-{last} lookup main" for first, last in ports
        ]
        rules += [
            f"priority 1 to {node} lookup main",
            "priority 4 ipproto udp prohibit",
            "priority 4 to 169.254.169.254 prohibit",
            "priority 5 unreachable",
        ]
        self._add_rules(made, rules)

    def permit(self, made: str, destinations: Iterable[tuple[str, int, int]]) -> None:
        """Let a restricted namespace connect to addresses, at ports from the first to the last."""
        self._add_rules(
            made,
            [
                f"priority 3 to {address} ipproto tcp dport {first}-{last} lookup main"
                for address, first, last in destinations
            ],
        )

    def _add_rules(self, made: str, rules: list[str]) -> None:
        batch = "".join(f"rule add {each}\n" for each in rules)
        _run("ip", "-n", made, "-batch", "-", given=batch)

    def refused(self, made: str) -> int:
        """How often something in a restricted namespace has tried what is refused."""
        names, values = (
            line.split()
            for line in _run("ip", "netns", "exec", made, "cat", "/proc/net/snmp").splitlines()
            if line.startswith("Ip:")
        )
        return int(values[names.index("OutNoRoutes")])

    def remove(self, made: str) -> None:
        """Remove a namespace in which nothing runs any more."""
        # A namespace that something still uses would keep its addresses.
        _run("ip", "-n", made, "link", "delete", "eth0")
        _run("ip", "netns", "delete", made)
        self._made.remove(made)

    def remove_all(self) -> None:
        """Remove all of them; what is left of one that cannot be removed does not keep others."""
        left = [made for made in self._made if not _done("ip", "netns", "delete", made)]
        assert not left, left

    def _add(self, name: str) -> str:
        made = f"{self._name}-{name}"
        _run("ip", "netns", "add", made)
        self._made.append(made)
        _run("ip", "-n", made, "link", "set", "lo", "up")
        return made


@contextmanager
def wired(name: str) -> Iterator[Wires]:
    """Namespaces that are removed in the end."""
    made = Wires(name)
    try:
        made.connect()
        yield made
    finally:
        made.remove_all()


def _run(*words: str, given: str = "") -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True, input=given).stdout


def _done(*words: str) -> bool:
    return subprocess.run(words, capture_output=True).returncode == 0
