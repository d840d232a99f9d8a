"""A Mininet network and a service that drives it, for tests; run by the system's Python as root.

It reads one command per line as JSON, and answers each with one line. It expects to be alone in its
network namespace, where the names of interfaces, and ports on loopback, are its own.
"""

import faulthandler
import json
import subprocess
import sys
import time
from contextlib import ExitStack, redirect_stdout
from functools import partial
from pathlib import Path
from urllib.request import urlopen

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "examples"))

import mininet_quotes as example  # noqa: E402
from mininet.log import setLogLevel  # noqa: E402
from mininet.topolib import TreeTopo  # noqa: E402

API, OPENFLOW = 8080, 6653
PATIENCE = 60.0


class Managed(TreeTopo):
    """A tree, the last host of which has an interface for its management, too."""

    def build(self):
        """Add the nodes."""
        super().build(depth=2, fanout=2)
        self.addLink(self.addHost("m1"), "h4")


class Driver:
    """Carries out commands."""

    def __init__(self, net):
        self.net = net
        self.programs = {}

    def quotes(self, count):
        """Send quotes as the example does; returns whether all hosts got what they asked for."""
        self.net.hosts = [host for host in self.net.hosts if host.name != "m1"]
        return example.send_quotes(self.net, API, count)

    def command(self, host, name, *options):
        """The words of a command of dzflow on a host."""
        return example.command(self.net[host], f"http://127.0.0.1:{API}", name, *options)

    def start(self, host, words, first_line=False):
        """Start a program on a host; returns its name, or the first line that it prints."""
        program = self.net[host].popen(
            [*example.END_WITH_ME, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        name = str(program.pid)
        self.programs[name] = program
        return [name, program.stdout.readline() if first_line else ""]

    def end(self, name):
        """Wait for the end of a program: its exit code, and what it printed."""
        program = self.programs.pop(name)
        said, _ = program.communicate(timeout=PATIENCE)
        return [program.returncode, said]

    def publish_until_end(self, host, event, name):
        """Have a host publish an event again and again until a program has ended."""
        words = self.command(host, "publish", json.dumps(event))
        end = time.monotonic() + PATIENCE
        while self.programs[name].poll() is None and time.monotonic() < end:
            self.end(self.start(host, words)[0])
        return self.end(name)

    def link(self, one, other, status):
        """Take a link down or up, as Mininet's `link` does."""
        self.net.configLinkStatus(one, other, status)

    def restart(self, switch):
        """Stop and start a switch, as Mininet's `switch` does."""
        self.net[switch].stop(deleteIntfs=False)
        self.net[switch].start(self.net.controllers)

    def address(self, host):
        """The IPv4 address of a host."""
        return self.net[host].IP()

    def get(self, path):
        """What the API answers."""
        with urlopen(f"http://127.0.0.1:{API}{path}", timeout=30) as answer:
            return json.load(answer)


def start_service(stack, folder, *options):
    """Start the service, and wait until it is ready."""
    python = example.DZFLOW.with_name("python")
    service = subprocess.Popen(
        [
            python,
            "-m",
            "tests.end_to_end.mininet_service",
            folder,
            str(API),
            str(OPENFLOW),
            *options,
        ],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=(folder / "service.log").open("w"),
        stderr=subprocess.STDOUT,
    )
    stack.callback(service.wait)
    stack.callback(service.stdin.close)
    example.until(lambda: example.is_ready(API), "the service is ready", PATIENCE)


def main(folder, topo, *options):
    """Build everything, then carry out commands until there are no more."""
    setLogLevel("error")
    faulthandler.dump_traceback_later(4 * PATIENCE, exit=True)  # where it hangs, if it does
    answers = sys.stdout
    with redirect_stdout(sys.stderr), example.open_vswitch(), ExitStack() as stack:
        # First the service, as the page says: it hears what switches say as they start.
        start_service(stack, folder, *options)
        made = Managed() if topo == "managed" else example.make_topo(topo)
        net = example.build(made, OPENFLOW)
        stack.callback(net.stop)
        net.start()
        example.prepare(net)
        found = partial(example.is_found, net, API)
        example.until(found, "all switches and links are found", PATIENCE)
        example.accept_hosts(net, API)
        stack.enter_context(example.api_in_hosts(net, API))
        driver = Driver(net)
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps("ready"), file=answers, flush=True)
        for line in sys.stdin:
            name, *given = json.loads(line)
            print(json.dumps(getattr(driver, name)(*given)), file=answers, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
