"""The queue of a switch: what is sent together, and what has to wait for an answer."""

import asyncio
from collections.abc import Sequence

import pytest

from dzflow.address import Scope
from dzflow.region import Region
from sdn.fence import Fence, StaleEpoch
from sdn.openflow.connections.connection import Finished, Run, SwitchConnection
from sdn.openflow.protocol.session import Sent
from sdn.openflow.switches.flow_mod_queue import FlowModQueue
from sdn.openflow.switches.limits import Limits
from sdn.openflow.switches.make_before_break import hold_from
from sdn.openflow.switches.send_batcher import SendBatcher
from sdn.outcomes import Acknowledged, Outcome
from sdn.tables.flows import Change, FlowEntry, FlowOp, Output
from sdn.tables.pipeline import MATCH_PRIORITY
from sdn.tables.shadow import Shadow
from tests.support import until


class Owner:
    """The owner of a queue to which nothing happens."""

    lacks_room = False

    def about_to_send(self, connection: SwitchConnection, count: int) -> None:
        pass

    def connection_lost(self, connection: SwitchConnection, reason: str) -> None:
        raise AssertionError(f"{connection}: {reason}")

    def mastership_lost(self) -> None:
        raise AssertionError("no other process is there")

    def room_made(self) -> None:
        raise AssertionError("the switch has room")


class Line(SwitchConnection):
    """A connection that keeps the operations that are sent, and answers them if it should."""

    def __init__(self, answers: bool = True) -> None:
        self.writable = True
        self.lost: str | None = None
        self.sent: list[FlowOp] = []
        self._answers = answers

    def send_ops(self, ops: Sequence[FlowOp], finished: Finished) -> None:
        self.sent += ops
        if self._answers:
            run = Run(Sent(0, 0), finished)
            asyncio.get_running_loop().call_soon(finished, run, None)


def queue_on(line: Line, capacity: int | None = None) -> FlowModQueue:
    """An open queue that sends over a line."""
    shadow = Shadow(lambda _: "p")
    queue = FlowModQueue("s1", shadow, Fence(), Limits(), SendBatcher(), Owner())
    queue.set_capacity(capacity)
    queue.attach(line)
    queue.open()
    return queue


def entry(text: str, table: int = 1, in_port: int | None = None) -> FlowEntry:
    match = Scope(1).match(Region.parse(text), 0)
    return FlowEntry(table, MATCH_PRIORITY, match, (Output(1),), 2, in_port)


def add(text: str, table: int = 1, in_port: int | None = None) -> FlowOp:
    return FlowOp(Change.ADD, entry(text, table, in_port))


def modify(text: str) -> FlowOp:
    return FlowOp(Change.MODIFY, entry(text))


def delete(text: str, table: int = 1) -> FlowOp:
    return FlowOp(Change.DELETE, entry(text, table))


def test_a_removal_waits_only_for_what_may_replace_the_entry() -> None:
    assert hold_from([add("0"), delete("00")], 0) == 1
    assert hold_from([add("00"), add("01"), delete("1"), delete("0")], 0) == 3
    assert hold_from([add("0"), delete("1"), delete("11")], 0) == 3
    assert hold_from([add("0"), delete("00", table=2)], 0) == 2
    assert hold_from([add("0", in_port=3), delete("00")], 0) == 2
    assert hold_from([delete("0"), add("00")], 0) == 2
    assert hold_from([add("0"), delete("00"), add("11"), delete("1")], 1) == 3
    assert hold_from([modify("0"), delete("00")], 0) == 1
    assert hold_from([modify("0"), modify("00"), delete("1")], 0) == 3
    assert hold_from([add("0"), modify("00")], 0) == 1
    many = [add(f"1{number:06b}") for number in range(40)]
    assert hold_from([*many, delete("0")], 0) == 40  # too many to look at


async def test_repairs_that_are_sent_at_once_make_room_first() -> None:
    line = Line()
    repairs = [add("00"), add("01"), modify("1"), delete("0")]
    assert await queue_on(line).repair(repairs, at_once=True) == Acknowledged()
    assert line.sent == [delete("0"), add("00"), add("01"), modify("1")]


async def test_a_newer_batch_does_not_overtake_repairs() -> None:
    line = Line()
    queue = queue_on(line)
    outcomes: list[Outcome | StaleEpoch] = []
    repairs = [add("0"), delete("00")]
    repairing = asyncio.create_task(queue.repair(repairs))
    await asyncio.sleep(0)  # the repairs are queued
    queue.submit("p", 1, [add("00")], lambda _, outcome: outcomes.append(outcome))
    assert await repairing == Acknowledged()
    await until(lambda: outcomes)
    assert line.sent == [*repairs, add("00")]
    assert outcomes == [Acknowledged()]


async def test_batches_of_one_partition_stay_in_order() -> None:
    line = Line()
    queue = queue_on(line)
    outcomes: list[Outcome | StaleEpoch] = []
    for partition, ops in (
        ("p", [add("0"), delete("00")]),
        ("p", [add("00")]),
        ("q", [add("1")]),
    ):
        queue.submit(partition, 1, ops, lambda _, outcome: outcomes.append(outcome))
    await until(lambda: len(outcomes) == 3)
    assert line.sent == [add("0"), delete("00"), add("00"), add("1")]
    assert outcomes == [Acknowledged()] * 3


@pytest.mark.parametrize(("capacity", "sent"), [(100, 2), (2, 1), (None, 1)])
async def test_a_removal_is_sent_at_once_only_if_there_is_room_for_certain(
    capacity: int | None, sent: int
) -> None:
    line = Line(answers=False)
    queue_on(line, capacity).submit("p", 1, [add("0"), delete("00")], lambda *_: None)
    await until(lambda: line.sent)
    assert len(line.sent) == sent
