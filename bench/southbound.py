"""Acknowledged flow-mods per second into Open vSwitch, beside the limit and other methods.

The limit is a stream that was encoded ahead, with the same barriers. It is compared with the
driver's `apply` (which encodes), `ovs-ofctl add-flows` with and without `--bundle`, and os-ken's
encoder. Besides: how long it takes until 102 switches are found (`start_up.py`).
"""

import asyncio
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench import start_up
from bench.processes.switches import wait_until_up
from bench.raw_stream import TIMEOUT, raw_stream
from bench.report import Progress, Report, Row
from dzflow.address import Scope
from dzflow.region import Region
from sdn.lab import Lab
from sdn.network.topologies import topology
from sdn.openflow.driver import DriverOptions, OpenFlowDriver
from sdn.outcomes import Acknowledged
from sdn.tables.flows import Change, FlowEntry, FlowOp, Output
from sdn.tables.pipeline import MATCH_PRIORITY, Pipeline

BATCHES = (1, 10, 100, 1_000)
SWITCHES = (1, 10)
SOUTHBOUND = (1, 3)  # processes that find 102 switches together
PARTITIONS = 16  # concurrent batches, one per partition


def run(quick: bool, progress: Progress) -> Report:
    """Run all measurements; needs root and Open vSwitch."""
    count = 20_000 if quick else 100_000
    report = Report("southbound", {"quick": quick, "flow_mods": count, "partitions": PARTITIONS})
    report.rows = asyncio.run(_measure(count, progress))
    for southbound in SOUTHBOUND:
        report.rows.append(start_up.measure_service(progress, southbound))
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
            took = await raw_stream(network, uniform_flow_mods(part, names), batch)
            rows.append(_rate_row("raw stream", switches, batch, part, took))
            if switches == 1 and batch == 100:
                progress("os-ken's encoder")
                rows.append(
                    _rate_row("os-ken encoder alone", 1, batch, 5_000, _encode_with_os_ken(5_000))
                )
    progress("ovs-ofctl")
    rows += _measure_ofctl(count)
    progress("102 emulated switches")
    rows.append(await start_up.measure_driver())
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


def uniform_flow_mods(count: int, switches: Sequence[str]) -> dict[str, list[FlowOp]]:
    """Additions of distinct entries to one table with one mask, the same number for each switch."""
    ops, share = _ops(count), count // len(switches)
    return {name: ops[n * share : (n + 1) * share] for n, name in enumerate(switches)}


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
