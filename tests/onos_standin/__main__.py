"""Runs the ONOS stand-in until it gets SIGTERM or SIGINT.

The first line of output is JSON: the stand-in's address and credentials, and the UDP addresses of
the emulated hosts.
"""

import argparse
import asyncio
import signal

import msgspec

from sdn.emulator.network import EmulatedNetwork
from sdn.network.topologies import topology
from tests.onos_standin.process import RunningStandIn
from tests.onos_standin.stand_in import OnosStandIn


async def serve(arguments: argparse.Namespace) -> None:
    """Serve until a signal comes."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    network = EmulatedNetwork(topology(arguments.topology))
    onos = OnosStandIn(
        network, user=arguments.user, password=arguments.password, port=arguments.port
    )
    async with network, onos:
        running = RunningStandIn(onos.url, arguments.user, arguments.password, network.endpoints())
        print(msgspec.json.encode(running).decode(), flush=True)
        await stop.wait()


parser = argparse.ArgumentParser(prog="python -m tests.onos_standin", description=__doc__)
parser.add_argument("--port", type=int, default=0, help="HTTP port (default: any free one)")
parser.add_argument("--topology", default="line:3", help="name or file (default: line:3)")
parser.add_argument("--user", default="onos")
parser.add_argument("--password", default="rocks")

if __name__ == "__main__":
    asyncio.run(serve(parser.parse_args()))
