"""The queue of a switch: what is sent together, and what has to wait for an answer."""

import asyncio
from collections.abc import Sequence

from dzflow.address import Scope
from dzflow.region import Region
from sdn.fence import Fence, StaleEpoch
from sdn.flows import Change, FlowEntry, FlowOp, Output
from sdn.openflow.protocol.session import Sent
from sdn.openflow.switches.connection import Connection, Finished, Run
from sdn.openflow.switches.flow_mod_queue import Limits, Sender
from sdn.openflow.switches.holding import held_from
from sdn.openflow.switches.send_batcher import Pulse
from sdn.outcomes import Acknowledged, Outcome
from sdn.pipeline import MATCH_PRIORITY
from sdn.shadow import Shadow


class Line(Connection):
    """A connection that keeps what is sent, until it is answered."""

    def __init__(self) -> None:
        self.writable = True
        self.lost: str | None = None
        self.sent: list[FlowOp] = []
        self._unanswered: list[Finished] = []

    def send_ops(self, ops: Sequence[FlowOp], finished: Finished) -> None:
        self.sent += ops
        self._unanswered.append(finished)

    def answer(self) -> None:
        unanswered, self._unanswered = self._unanswered, []
        for finished in unanswered:
            finished(Run(Sent(0, 0), finished), None)


def entry(text: str, table: int = 1, in_port: int | None = None) -> FlowEntry:
    match = Scope(1).match(Region.parse(text), 0)
    return FlowEntry(table, MATCH_PRIORITY, match, (Output(1),), 2, in_port)


def add(text: str, table: int = 1, in_port: int | None = None) -> FlowOp:
    return FlowOp(Change.ADD, entry(text, table, in_port))


def modify(text: str) -> FlowOp:
    return FlowOp(Change.MODIFY, entry(text))


def delete(text: str, table: int = 1) -> FlowOp:
    return FlowOp(Change.DELETE, entry(text, table))


async def answered(line: Line) -> None:
    """Let all be sent that can be, and answered, until there is nothing more."""
    before = -1
    while len(line.sent) > before:
        before = len(line.sent)
        await asyncio.sleep(0.01)
        line.answer()


def test_what_takes_away_waits_only_for_what_may_replace_it() -> None:
    assert held_from([add("0"), delete("00")], 0) == 1
    assert held_from([add("00"), add("01"), delete("1"), delete("0")], 0) == 3
    assert held_from([add("0"), delete("1"), delete("11")], 0) == 3
    assert held_from([add("0"), delete("00", table=2)], 0) == 2
    assert held_from([add("0", in_port=3), delete("00")], 0) == 2
    assert held_from([delete("0"), add("00")], 0) == 2
    assert held_from([add("0"), delete("00"), add("11"), delete("1")], 1) == 3
    assert held_from([modify("0"), delete("00")], 0) == 1
    assert held_from([modify("0"), modify("00"), delete("1")], 0) == 3
    assert held_from([add("0"), modify("00")], 0) == 1
    many = [add(f"1{number:06b}") for number in range(40)]
    assert held_from([*many, delete("0")], 0) == 40  # too many to look at


async def test_what_is_newer_than_repairs_does_not_overtake_them() -> None:
    line = Line()
    sender = Sender("s1", Shadow(lambda _: "p"), Fence(), Limits(), Pulse())
    sender.connection, sender.up = line, True
    outcomes: list[Outcome | StaleEpoch] = []
    repairs = [add("0"), delete("00")]
    repairing = asyncio.create_task(sender.repair(repairs))
    await asyncio.sleep(0)
    sender.submit("p", 1, [add("00")], lambda _, outcome: outcomes.append(outcome))
    await answered(line)
    assert line.sent == [*repairs, add("00")]
    assert await repairing == Acknowledged()
    assert outcomes == [Acknowledged()]


async def test_batches_of_one_partition_stay_in_order() -> None:
    line = Line()
    sender = Sender("s1", Shadow(lambda _: "p"), Fence(), Limits(), Pulse())
    sender.connection, sender.up = line, True
    outcomes: list[Outcome | StaleEpoch] = []
    for partition, ops in (
        ("p", [add("0"), delete("00")]),
        ("p", [add("00")]),
        ("q", [add("1")]),
    ):
        sender.submit(partition, 1, ops, lambda _, outcome: outcomes.append(outcome))
    await answered(line)
    assert line.sent == [add("0"), delete("00"), add("00"), add("1")]
    assert outcomes == [Acknowledged()] * 3


def test_nothing_is_held_where_there_is_room_without_doubt() -> None:
    async def sent_at_once(room: int | None) -> int:
        line = Line()
        sender = Sender("s1", Shadow(lambda _: "p"), Fence(), Limits(), Pulse())
        sender.connection, sender.up, sender._room = line, True, room
        sender.submit("p", 1, [add("0"), delete("00")], lambda *_: None)
        await asyncio.sleep(0.01)
        return len(line.sent)

    assert [asyncio.run(sent_at_once(room)) for room in (100, 2, None)] == [2, 1, 1]
