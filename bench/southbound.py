"""Acknowledged flow-mods per second into Open vSwitch, beside the limit and other methods.

The limit is a stream that was encoded ahead, with the same barriers. It is compared with the
driver's `apply` (which encodes), `ovs-ofctl add-flows` with and without `--bundle`, and os-ken's
encoder.
"""

import asyncio
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.report import Progress, Report, Row
from bench.processes.switches import wait_until_up
from dzflow.address import Scope
from dzflow.region import Region
from sdn.emulator import EmulatedNetwork
from sdn.tables.flows import Change, FlowEntry, FlowOp, Output
from sdn.lab import Lab
from sdn.network.events import LinkChanged, SwitchUp
from sdn.openflow.driver import DriverOptions, OpenFlowDriver
from sdn.openflow.protocol.codec import barrier, encode_ops
from sdn.openflow.protocol.constants import V1_4
from sdn.openflow.protocol.session import Session
from sdn.outcomes import Acknowledged
from sdn.tables.pipeline import MATCH_PRIORITY, Pipeline
from sdn.network.topologies import topology
from sdn.network.topology import Link, Topology

Peer = tuple[asyncio.StreamReader, asyncio.StreamWriter]
BATCHES = (1, 10, 100, 1_000)
SWITCHES = (1, 10)
PARTITIONS = 16  # concurrent batches, one per partition
TIMEOUT = 60.0  # seconds


def run(quick: bool, progress: Progress) -> Report:
    """Run all measurements; needs root and Open vSwitch."""
    count = 20_000 if quick else 100_000
    report = Report("southbound", {"quick": quick, "flow_mods": count, "partitions": PARTITIONS})
    report.rows = asyncio.run(_measure(count, progress))
    rates = {
        (row["method"], row["switches"], row["batch"]): row["flow_mods_per_s"]
        for row in report.rows
        if row["measure"] == "rate"
    }
    for switches in SWITCHES:
        for batch in BATCHES:
            share = rates["apply", switches, batch] / rates["raw stream", switches, batch]
            report.ratios[f"share_of_raw_stream_{switches}x{batch}"] = share
    latency = {row["method"]: row for row in report.rows if row["measure"] == "latency"}
    report.ratios = {
        "share_of_raw_stream": report.ratios["share_of_raw_stream_1x100"],
        **report.ratios,
        "latency_p50_over_barrier": latency["apply of 1"]["p50_us"]
        / latency["barrier alone"]["p50_us"],
    }
    return report


async def _measure(count: int, progress: Progress) -> list[Row]:
    rows: list[Row] = []
    for switches in SWITCHES:
        network = topology(f"line:{switches}")
        names = [switch.id for switch in network.switches]
        for batch in BATCHES:
            # One barrier per flow-mod is slow with every method: measure fewer.
            part = count // 10 if batch == 1 else count
            progress(f"{switches} switches, batches of {batch}")
            pipeline = Pipeline().extended(network)
            options = DriverOptions(port=0, timeout=TIMEOUT)
            async with OpenFlowDriver(network, pipeline, lambda _: "bench", {}, options) as driver:
                with Lab(network, f"tcp:127.0.0.1:{driver.port}"):
                    await wait_until_up(driver, switches)
                    took = await _apply_all(driver, names, batch, part)
                    rows.append(_rate_row("apply", switches, batch, part, took))
                    if switches == 1 and batch == 100:
                        rows += await _measure_latency(driver)
            took = await raw_stream(network, batch, part)
            rows.append(_rate_row("raw stream", switches, batch, part, took))
            if switches == 1 and batch == 100:
                progress("os-ken's encoder")
                rows.append(
                    _rate_row("os-ken encoder alone", 1, batch, 5_000, _encode_with_os_ken(5_000))
                )
    progress("ovs-ofctl")
    rows += _measure_ofctl(count)
    progress("102 emulated switches")
    rows.append(await _measure_start_up())
    return rows


def _rate_row(method: str, switches: int, batch: int, count: int, seconds: float) -> Row:
    return {
        "measure": "rate",
        "method": method,
        "switches": switches,
        "batch": batch,
        "flow_mods_per_s": count / seconds,
    }


def _ops(count: int) -> list[FlowOp]:
    """Additions of distinct entries, as the plan `legs` makes them."""
    scope = Scope(1)
    return [
        FlowOp(
            Change.ADD,
            FlowEntry(
                1, MATCH_PRIORITY, scope.match(Region(n << 40, ((1 << 56) - 1) << 40), 0),
                (Output(1),), 2,
            ),
        )
        for n in range(count)
    ]  # fmt: skip


def _cut(ops: list[FlowOp], switches: list[str], batch: int) -> Iterator[dict[str, list[FlowOp]]]:
    """Batches with the same number of operations for each switch."""
    share = len(ops) // len(switches)
    for start in range(0, share, batch):
        yield {
            name: ops[n * share + start : n * share + min(start + batch, share)]
            for n, name in enumerate(switches)
        }


async def _apply_all(driver: OpenFlowDriver, names: list[str], batch: int, count: int) -> float:
    waiting = _cut(_ops(count), names, batch)

    async def partition(number: int) -> None:
        for part in waiting:
            outcomes = await driver.apply(f"p{number}", 1, part)
            assert all(isinstance(outcome, Acknowledged) for outcome in outcomes.values()), outcomes

    began = time.perf_counter()
    await asyncio.gather(*(partition(number) for number in range(PARTITIONS)))
    return time.perf_counter() - began


async def _measure_latency(driver: OpenFlowDriver) -> list[Row]:
    (name,) = driver.connected()
    connection = driver.connection(name)
    bare, applied = [], []
    for op in _ops(2_000):
        began = time.perf_counter()
        await connection.barrier()
        bare.append(time.perf_counter() - began)
        began = time.perf_counter()
        await driver.apply("latency", 1, {name: [op]})
        applied.append(time.perf_counter() - began)
    return [
        {
            "measure": "latency",
            "method": method,
            "p50_us": 1e6 * sorted(times)[len(times) // 2],
            "p99_us": 1e6 * sorted(times)[len(times) * 99 // 100],
        }
        for method, times in (("barrier alone", bare), ("apply of 1", applied))
    ]


async def raw_stream(network: Topology, batch: int, count: int) -> float:
    """The seconds to stream encoded flow-mods to all switches at once, one connection each."""
    names = [switch.id for switch in network.switches]
    streams: list[list[bytes]] = [[] for _ in names]
    for part in _cut(_ops(count), names, batch):
        for n, ops in enumerate(part.values()):
            xid = 1_000 + len(streams[n]) * (batch + 1)
            streams[n].append(encode_ops(V1_4, ops, xid) + barrier(V1_4, xid + len(ops)))
    arrived: asyncio.Queue[Peer] = asyncio.Queue()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await arrived.put((reader, writer))

    # A refused switch reconnects only seconds later, so the backlog is long.
    server = await asyncio.start_server(accept, "127.0.0.1", 0, backlog=4 * len(names) + 16)
    async with server, asyncio.timeout(TIMEOUT):
        with Lab(network, f"tcp:127.0.0.1:{server.sockets[0].getsockname()[1]}"):
            alive: dict[asyncio.Task[None], Peer] = {}
            while len(alive) < len(names):
                peer = await arrived.get()
                if session := await _shake_hands(*peer):
                    task = asyncio.create_task(_keep_alive(session, *peer))
                    alive[task] = peer
                    task.add_done_callback(lambda task: alive.pop(task, None))
            peers = list(alive.values())
            for task in list(alive):
                task.cancel()
            began = time.perf_counter()
            await asyncio.gather(
                *(_stream(*peer, stream) for peer, stream in zip(peers, streams, strict=True))
            )
            took = time.perf_counter() - began
            for _, writer in peers:
                writer.close()
    return took


async def _shake_hands(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> Session | None:
    """Shake hands with a switch; None if it closes the connection."""
    session = Session()
    while not session.ready:
        writer.write(session.outgoing())
        if not (received := await _receive(reader)):
            writer.close()
            return None
        session.feed(received)
    return session


async def _keep_alive(
    session: Session, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Answer echo requests until the stream begins, or the switch closes the connection."""
    while received := await _receive(reader):
        session.feed(received)
        writer.write(session.outgoing())
    writer.close()


async def _receive(reader: asyncio.StreamReader) -> bytes:
    """Received bytes; empty if the connection is closed."""
    try:
        return await reader.read(1 << 16)
    except ConnectionError:
        return b""


async def _stream(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, stream: list[bytes]
) -> None:
    async def send() -> None:
        for part in stream:
            writer.write(part)
            await writer.drain()

    async def count_replies() -> None:
        left = len(stream)
        while left:
            header = await reader.readexactly(8)
            length = int.from_bytes(header[2:4], "big")
            if length > 8:
                await reader.readexactly(length - 8)
            left -= header[1] == 21  # a barrier reply

    await asyncio.gather(send(), count_replies())


def _encode_with_os_ken(count: int) -> float:
    """The seconds to build and serialise flow-mods with os-ken's classes; nothing is sent."""
    from os_ken.ofproto import ofproto_v1_3, ofproto_v1_3_parser
    from os_ken.ofproto.ofproto_protocol import ProtocolDesc

    datapath = ProtocolDesc(version=ofproto_v1_3.OFP_VERSION)
    parser = ofproto_v1_3_parser
    began = time.perf_counter()
    for op in _ops(count):
        assert op.entry.match
        match = parser.OFPMatch(
            eth_type=0x86DD, ipv6_dst=(op.entry.match.address, op.entry.match.mask)
        )
        instructions = [
            parser.OFPInstructionActions(
                ofproto_v1_3.OFPIT_APPLY_ACTIONS, [parser.OFPActionOutput(1)]
            ),
            parser.OFPInstructionGotoTable(2),
        ]
        parser.OFPFlowMod(
            datapath, table_id=1, priority=MATCH_PRIORITY, match=match, instructions=instructions
        ).serialize()
    return time.perf_counter() - began


def _measure_ofctl(count: int) -> list[Row]:
    network = topology("line:1")
    lines = []
    for op in _ops(count):
        assert op.entry.match
        lines.append(
            f"table=1,priority={MATCH_PRIORITY},ipv6,ipv6_dst={op.entry.match}"
            " actions=output:1,goto_table:2\n"
        )
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "flows"
        file.write_text("".join(lines))
        for method, options in (("ovs-ofctl add-flows", []), ("ovs-ofctl --bundle", ["--bundle"])):
            with Lab(network) as lab:
                began = time.perf_counter()
                lab.ofctl("s1", "add-flows", str(file), *options)
                rows.append(_rate_row(method, 1, count, count, time.perf_counter() - began))
    return rows


async def _measure_start_up() -> Row:
    """The time from the start of 102 emulated switches until the driver has discovered all links.

    The driver discovers links here. In the service no setting turns discovery on yet.
    """
    network = topology("fat-tree:102")
    pipeline = Pipeline().extended(network)
    async with OpenFlowDriver(
        network, pipeline, lambda _: "bench", {}, DriverOptions(port=0)
    ) as driver:
        began = time.perf_counter()
        async with EmulatedNetwork(network, controllers=[("127.0.0.1", driver.port)]):
            up: set[str] = set()
            links: set[Link] = set()
            async with asyncio.timeout(TIMEOUT):
                while len(up) < len(network.switches) or len(links) < len(network.links):
                    event = await driver.events.get()
                    if isinstance(event, SwitchUp):
                        up.add(event.switch)
                    elif isinstance(event, LinkChanged) and event.up:
                        links.add(event.link)
            took = time.perf_counter() - began
    return {
        "measure": "start-up",
        "switches": len(network.switches),
        "links": len(network.links),
        "seconds": took,
    }
