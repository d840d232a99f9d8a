"""Stock quotes between the hosts of a Mininet network, delivered by its switches.

Run it as root with the system's Python, which has Mininet (Debian: `make mininet`):

    /usr/bin/python3 examples/mininet_quotes.py

It builds the network. When the service runs and has found all of it, the first host publishes
quotes; each of the others has asked for some. The exit code is 0 if all got what they asked for.
docs/how-to/mininet.md explains each step.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from urllib.request import Request, urlopen

from mininet.cli import CLI
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.node import OVSSwitch, RemoteController
from mininet.topo import LinearTopo, Topo
from mininet.topolib import TreeTopo

DZFLOW = Path(__file__).parents[1] / ".venv/bin/dzflow"
SCHEMA = {
    "attributes": [
        {"name": "price", "type": "int", "min": 0, "max": 999},
        {"name": "symbol", "type": "enum", "values": ["ACME", "INIT", "ZORK"]},
    ]
}
WANTED = (
    ("price >= 500", lambda quote: quote["price"] >= 500),
    ('symbol == "ACME"', lambda quote: quote["symbol"] == "ACME"),
    ("price < 300", lambda quote: quote["price"] < 300),
)
END_WITH_ME = ("setpriv", "--pdeathsig", "TERM")


class RingTopo(Topo):
    """Switches in a ring, each with a host."""

    def build(self, count=3):
        """Add the nodes; links between switches come before those to hosts."""
        switches = [self.addSwitch(f"s{n}") for n in range(1, count + 1)]
        for one, other in zip(switches, [*switches[1:], switches[0]], strict=True):
            self.addLink(one, other)
        for n, switch in enumerate(switches, 1):
            self.addLink(switch, self.addHost(f"h{n}"))


SHAPES = {"tree": TreeTopo, "linear": LinearTopo, "ring": RingTopo}


def make_topo(text):
    """The topology that a text like `tree:2,2`, `linear:3` or `ring:4` names."""
    name, _, sizes = text.partition(":")
    try:
        return SHAPES[name](*map(int, sizes.split(",")))
    except (KeyError, TypeError, ValueError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not like tree:2,2 or linear:3 or ring:4"
        ) from None


# The network


@contextmanager
def open_vswitch():
    """Open vSwitch, for as long as the block runs: the machine's, or a private one if none runs."""
    if "OVS_RUNDIR" not in os.environ and _succeeds("ovs-vsctl", "--timeout=3", "show"):
        yield
        return
    with tempfile.TemporaryDirectory(prefix="ovs") as folder, ExitStack() as stack:
        for name in ("RUNDIR", "LOGDIR", "DBDIR", "SYSCONFDIR"):
            os.environ[f"OVS_{name}"] = folder
            stack.callback(os.environ.pop, f"OVS_{name}")
        subprocess.run(["ovsdb-tool", "create", f"{folder}/conf.db"], check=True)
        database = f"unix:{folder}/db.sock"
        quiet = ["-vconsole:off", "-vsyslog:off", "--log-file"]
        _start(stack, ["ovsdb-server", f"--remote=p{database}", *quiet, f"{folder}/conf.db"])
        until(lambda: Path(f"{folder}/db.sock").exists(), "ovsdb-server runs")
        control = f"{folder}/control"
        _start(stack, ["ovs-vswitchd", f"--unixctl={control}", database, *quiet])
        until(partial(_succeeds, "ovs-appctl", "-t", control, "version"), "ovs-vswitchd runs")
        yield


def build(topo, port=6653):
    """The network, not started yet; its switches connect to the service at this port."""
    switch = partial(OVSSwitch, datapath="user", protocols="OpenFlow13,OpenFlow14")
    net = Mininet(topo, switch=switch, controller=None, autoSetMacs=True)
    net.addController("dzflow", controller=RemoteController, ip="127.0.0.1", port=port)
    return net


def prepare(net):
    """Let hosts fill in checksums themselves, since no network card of a Mininet host will.

    Otherwise they drop every event: the last switch rewrites the address, which is part of the sum.
    """
    for host in net.hosts:
        for interface in host.intfNames():
            host.cmd("ethtool -K", interface, "tx off")


def describe(net):
    """The network as a topology file says it (docs/reference/topologies.md).

    The service gives switches it finds the names that Mininet gives them: s and the datapath id.
    """
    links, hosts = [], {}
    for link in net.links:
        ends = [(interface.node, interface) for interface in (link.intf1, link.intf2)]
        at = [
            (node.name, node.ports[interface]) for node, interface in ends if node in net.switches
        ]
        if len(at) == 2:
            (a, a_port), (b, b_port) = at
            links.append({"a": a, "a_port": a_port, "b": b, "b_port": b_port})
        elif len(at) == 1:
            (switch, port) = at[0]
            host, interface = next(end for end in ends if end[0] not in net.switches)
            entry = {"id": host.name, "switch": switch, "port": port, "mac": interface.MAC()}
            hosts.setdefault(host.name, entry)
    switches = [{"id": switch.name, "dpid": int(switch.dpid, 16)} for switch in net.switches]
    return {"switches": switches, "links": links, "hosts": list(hosts.values())}


def is_found(net, port):
    """Whether the service knows all switches and links, and the links are up."""
    expected, found = describe(net), _call(port, "/topology")
    switches = {switch["id"] for switch in found["switches"]}
    links = {frozenset(_ends(link)) for link in found["links"] if link["up"]}
    return switches == {switch["id"] for switch in expected["switches"]} and links == {
        frozenset(_ends(link)) for link in expected["links"]
    }


def declare_hosts(net, port):
    """Tell the service where the hosts are."""
    for host in describe(net)["hosts"]:
        place = {name: value for name, value in host.items() if name != "id"}
        _call(port, f"/hosts/{host['id']}", place)


def accept_hosts(net, port):
    """Accept the hosts that the service has heard, under the names that Mininet gives them."""
    for host in describe(net)["hosts"]:
        heard = f"host-{host['mac'].replace(':', '')}"
        until(
            lambda heard=heard: heard in {one["id"] for one in proposals(port)["items"]},
            f"the service hears {host['id']}",
        )
        where = {name: host[name] for name in ("id", "switch", "port")}
        _call(port, f"/host-proposals/{heard}/accept", where, "POST")


def proposals(port):
    """The hosts that the service has heard, and what it does with them."""
    return _call(port, "/host-proposals")


@contextmanager
def api_in_hosts(net, port):
    """Make 127.0.0.1:`port` of this machine answer at the same address in every host."""
    with tempfile.TemporaryDirectory(prefix="api") as folder, ExitStack() as stack:
        socket = f"{folder}/socket"
        _start(stack, ["socat", f"UNIX-LISTEN:{socket},fork", f"TCP:127.0.0.1:{port}"])
        listen = f"TCP-LISTEN:{port},bind=127.0.0.1,reuseaddr,fork"
        for host in net.hosts:
            _start(stack, ["socat", listen, f"UNIX-CONNECT:{socket}"], host.popen)
        yield


# Quotes


def send_quotes(net, port, count):
    """Have the first host publish quotes to the others; returns whether all got their share."""
    url = f"http://127.0.0.1:{port}"
    publisher, *others = net.hosts
    subprocess.run(
        [DZFLOW, "space", "put", "quotes", "-", "--url", url],
        input=json.dumps(SCHEMA),
        text=True,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    symbols = SCHEMA["attributes"][1]["values"]
    quotes = [
        {"price": random.randrange(1000), "symbol": random.choice(symbols)} for _ in range(count)
    ]
    with ExitStack() as stack:
        listeners = []
        for number, host in enumerate(others):
            text, matches = WANTED[number % len(WANTED)]
            expected = [quote for quote in quotes if matches(quote)]
            options = ["--filter", text, "--count", str(len(expected)), "--timeout", "60", "--json"]
            listener = _start(stack, command(host, url, "listen", *options), host.popen, True)
            listeners.append((host.name, text, expected, listener))
        for name, text, _, listener in listeners:
            print(f"{name}: {text}: {listener.stdout.readline().strip()}")
        run = partial(subprocess.run, check=True, text=True)
        publish = command(publisher, url, "publish", "-")
        advertise = command(publisher, url, "advertise", "--filter", "price >= 0", interface=False)
        inside = ["mnexec", "-a", str(publisher.pid)]
        run([*inside, *advertise], stdout=subprocess.DEVNULL)
        run([*inside, *publish], input="".join(f"{json.dumps(quote)}\n" for quote in quotes))
        complete = True
        for name, text, expected, listener in listeners:
            got = [json.loads(line) for line in listener.stdout if line.startswith("{")]
            exact = _sorted(got) == _sorted(expected)
            complete &= exact
            verdict = "as it asked for" if exact else f"but {len(expected)} were expected"
            print(f"{name}: {text}: got {len(got)} of {len(quotes)} quotes, {verdict}")
    return complete


def command(host, url, name, *options, interface=True):
    """A command of dzflow for a host."""
    words = [str(DZFLOW), name, "--host", host.name, "--space", "quotes", "--url", url]
    # A host may have several interfaces: name the one that leads to the switches.
    return [*words, *(["--interface", host.defaultIntf().name] if interface else []), *options]


def until(condition, what, patience=60.0, advice=""):
    """Wait until a condition holds."""
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"not so within {patience:.0f} s: {what}\n{advice}".rstrip())
        time.sleep(0.1)


def answers(port):
    """Whether the service runs; it may not be ready while switches join."""
    try:
        _call(port, "/healthz")
    except OSError:
        return False
    return True


def is_ready(port):
    """Whether the service answers and is ready."""
    try:
        return _call(port, "/readyz")["status"] == "ready"
    except OSError:
        return False


def _call(port, path, body=None, method="PUT"):
    """What the service answers; a body is put there (or posted)."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    url = f"http://127.0.0.1:{port}{path}"
    request = Request(url, data, headers, method="GET" if body is None else method)
    with urlopen(request, timeout=30) as answer:
        return json.load(answer)


def _ends(link):
    return (link["a"], link["a_port"]), (link["b"], link["b_port"])


def _sorted(quotes):
    return sorted((quote["price"], quote["symbol"]) for quote in quotes)


def _succeeds(*words):
    return not subprocess.run(words, capture_output=True, check=False).returncode


def _start(stack, words, popen=subprocess.Popen, read=False):
    """Start a program that ends with the stack, or if this process is killed."""
    output = subprocess.PIPE if read else subprocess.DEVNULL
    process = popen([*END_WITH_ME, *words], stdout=output, stderr=subprocess.STDOUT, text=True)
    stack.callback(process.wait)
    stack.callback(process.terminate)
    return process


def main():
    """Build the network, write its description, wait for the service, send quotes."""
    parser = argparse.ArgumentParser(description="Stock quotes between Mininet hosts.")
    parser.add_argument("--topo", type=make_topo, default="tree:2,2", help="or linear:N, ring:N")
    parser.add_argument("--file", type=Path, help="describe the network in this topology file")
    parser.add_argument("--count", type=int, default=50, help="so many quotes")
    parser.add_argument("--port", type=int, default=8080, help="of the API")
    parser.add_argument("--openflow", type=int, default=6653, help="where switches connect")
    parser.add_argument("--patience", type=float, default=600, help="seconds for the service")
    parser.add_argument("--cli", action="store_true", help="end with Mininet's command line")
    given = parser.parse_args()
    setLogLevel("error")  # Mininet would complain that the service does not run yet
    with open_vswitch(), ExitStack() as stack:
        net = build(given.topo, given.openflow)
        stack.callback(net.stop)
        net.start()
        prepare(net)
        if given.file:
            given.file.write_text(json.dumps(describe(net), indent=2) + "\n")
        print(f"{len(net.switches)} switches and {len(net.hosts)} hosts run", flush=True)
        if not answers(given.port):
            print("Start the service in another terminal:\n", flush=True)
            more = f" --topology {given.file}" if given.file else ""
            print(f'    make run ARGS="--data-plane external{more}"\n', flush=True)
        until(partial(is_ready, given.port), "the service is ready", given.patience)
        known = "the service has found all switches and links, and no others"
        advice = (
            "`.venv/bin/dzflow topology` and `.venv/bin/dzflow switches` show what it has. If it"
            " knows an earlier network: stop it, remove .dzflow, and start it again."
        )
        until(partial(is_found, net, given.port), known, advice=advice)
        if proposals(given.port)["mode"] == "propose":
            accept_hosts(net, given.port)
        else:
            declare_hosts(net, given.port)
        stack.enter_context(api_in_hosts(net, given.port))
        complete = send_quotes(net, given.port, given.count)
        if given.cli:
            CLI(net)
    sys.exit(not complete)


if __name__ == "__main__":
    main()
