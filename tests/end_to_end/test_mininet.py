"""A network that Mininet has made: events between its hosts, and what Mininet does to switches."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sdn.lab import missing_prerequisites
from sdn.lab.run import find
from sdn.tables.pipeline import OtherTraffic
from tests.support import until_sync

PYTHON = "/usr/bin/python3"  # the one that has Mininet
ROOT = Path(__file__).parents[2]
DRIVER = Path(__file__).with_name("mininet_driver.py")
SANDBOX = (
    *("unshare", "--net", "--pid", "--mount", "--mount-proc", "--fork", "--kill-child=KILL"),
    *("bash", "-c", 'ip link set lo up; exec "$@"', "sandbox"),
)


def missing() -> list[str]:
    """What keeps Mininet from running here."""
    found = missing_prerequisites()
    for program in ("mn", "socat", "ping", "unshare"):
        if find(program) is None:
            found.append(f"no {program}; `make mininet` installs it")
    return found


pytestmark = pytest.mark.skipif(bool(missing()), reason=f"no Mininet here: {'; '.join(missing())}")


class Network:
    """A Mininet network with a service that has found it, and the example's space."""

    def __init__(self, driver: "subprocess.Popen[str]", log: Path) -> None:
        self._driver = driver
        self._log = log

    def ask(self, name: str, *given: Any) -> Any:
        """Have the driver carry out a command, and return what it says."""
        assert self._driver.stdin
        self._driver.stdin.write(json.dumps([name, *given]) + "\n")
        self._driver.stdin.flush()
        return self.answer()

    def answer(self) -> Any:
        assert self._driver.stdout
        line = self._driver.stdout.readline()
        assert line, f"the driver has ended with {self._driver.wait()}: {self._log.read_text()}"
        return json.loads(line)

    def listen(self, host: str, text: str, count: int) -> str:
        """Start a listener for so many events; returns its name."""
        options = ["--filter", text, "--count", str(count), "--timeout", "120", "--json"]
        name, said = self.ask("start", host, self.ask("command", host, "listen", *options), True)
        assert "listening" in said
        return str(name)

    def publish(self, host: str, *prices: int) -> None:
        words = self.ask("command", host, "publish")
        program = f"printf '%s\\n' {' '.join(json.dumps(json.dumps(quote(p))) for p in prices)}"
        name, _ = self.ask("start", host, ["bash", "-c", f"{program} | {' '.join(words)} -"])
        code, said = self.ask("end", name)
        assert code == 0, said

    def links(self) -> list[bool]:
        """Whether each link is up."""
        return [link["up"] for link in self.ask("get", "/topology")["links"]]

    def whole(self) -> list[bool]:
        """Whether each tree has all its switches and links."""
        return [tree["whole"] for tree in self.ask("get", "/topology")["trees"]]

    def got(self, listener: str) -> list[int]:
        """The prices that a listener got."""
        code, said = self.ask("end", listener)
        assert code == 0, said
        return prices(said)


def quote(price: int) -> dict[str, Any]:
    return {"price": price, "symbol": "ACME"}


def prices(said: str) -> list[int]:
    return sorted(json.loads(line)["price"] for line in said.splitlines() if line.startswith("{"))


@contextmanager
def mininet(folder: Path, topo: str, other_traffic: OtherTraffic, trees: int) -> Iterator[Network]:
    """A service, then a network; its hosts have got the quotes of the example."""
    log = folder / "driver.log"
    with (
        log.open("w") as output,
        subprocess.Popen(
            [*SANDBOX, PYTHON, str(DRIVER), str(folder), topo, other_traffic, str(trees)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
        ) as driver,
    ):
        try:
            made = Network(driver, log)
            assert made.answer() == "ready", log.read_text()
            # The example makes the space.
            assert made.ask("quotes", 30) is True, log.read_text()
            yield made
            assert driver.stdin
            driver.stdin.close()
            assert driver.wait(60) == 0, log.read_text()
        finally:
            driver.kill()


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """A tree of three switches and four hosts; h4 has a second interface."""
    with mininet(tmp_path_factory.mktemp("mininet"), "managed", "normal", 1) as made:
        yield made


def test_hosts_of_a_line_of_switches_get_their_quotes(tmp_path: Path) -> None:
    with mininet(tmp_path, "linear:3", "leave", 1) as line:
        assert line.links() == [True, True]


def test_a_ring_loses_one_of_two_trees_with_a_link_and_no_event(tmp_path: Path) -> None:
    with mininet(tmp_path, "ring:4", "leave", 2) as ring:
        until_sync(lambda: ring.whole() == [True, True])
        listener = ring.listen("h3", "price >= 100", 40)
        ring.publish("h1", *range(100, 120))
        ring.ask("link", "s1", "s2", "down")
        # One of both stays; the other is replaced where the ring allows it, and has no tree left.
        until_sync(lambda: ring.links().count(False) == 1 and ring.whole().count(True) == 1)
        ring.publish("h1", *range(200, 220))
        assert ring.got(listener) == [*range(100, 120), *range(200, 220)]
        ring.ask("link", "s1", "s2", "up")
        until_sync(lambda: all(ring.links()) and ring.whole() == [True, True])


def test_each_host_gets_the_quotes_that_it_has_asked_for(network: Network) -> None:
    listeners = {
        host: network.listen(host, f"price > {least}", count)
        for host, least, count in (("h2", 100, 2), ("h3", 500, 1), ("h4", 0, 3))
    }
    network.publish("h1", 50, 400, 900)
    got = {host: network.got(name) for host, name in listeners.items()}
    assert got == {"h2": [400, 900], "h3": [900], "h4": [50, 400, 900]}


def test_hosts_ping_each_other_while_events_flow(network: Network) -> None:
    sent = list(range(100, 200, 5))
    listener = network.listen("h4", "price >= 100", len(sent))
    target = network.ask("address", "h4")
    pinging, _ = network.ask("start", "h1", ["ping", "-c", "30", "-i", "0.05", target])
    network.publish("h1", *sent)
    code, said = network.ask("end", pinging)
    assert code == 0
    assert " 0% packet loss" in said, said
    assert network.got(listener) == sent


def test_a_host_with_several_interfaces_names_the_one_that_leads_to_the_switches(
    network: Network,
) -> None:
    # Without a name, the kernel would take the other one for all events.
    other = [
        "ip",
        "-6",
        "route",
        "add",
        "multicast",
        "ff1e::/16",
        "dev",
        "h4-eth1",
        "table",
        "local",
    ]
    code, said = network.ask("end", network.ask("start", "h4", other)[0])
    assert code == 0, said
    listener = network.listen("h4", "price < 50", 1)
    network.publish("h1", 20)
    assert network.got(listener) == [20]
    listener = network.listen("h1", "price < 50", 1)
    network.publish("h4", 30)
    assert network.got(listener) == [30]


def test_a_link_that_goes_down_and_comes_up_again(network: Network) -> None:
    network.ask("link", "s1", "s3", "down")
    near = network.listen("h2", "price > 900", 1)
    network.publish("h1", 950)
    assert network.got(near) == [950]  # on the other side of the network, nothing has changed
    until_sync(lambda: not all(network.links()))
    network.ask("link", "s1", "s3", "up")
    until_sync(lambda: all(network.links()))
    far = network.listen("h3", "price > 900", 1)
    code, said = network.ask("publish_until_end", "h1", quote(960), far)
    assert (code, prices(said)) == (0, [960])


def test_a_switch_that_mininet_restarts_gets_its_entries_again(network: Network) -> None:
    listener = network.listen("h3", "price < 10", 1)  # its entries are on the switch before
    network.ask("restart", "s3")
    code, said = network.ask("publish_until_end", "h1", quote(5), listener)
    assert (code, prices(said)) == (0, [5])
