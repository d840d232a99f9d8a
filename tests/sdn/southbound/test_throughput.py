"""Batches in order, in shared runs, and independent of slow switches."""

import asyncio
from collections.abc import Sequence

from sdn.emulator.model import SwitchModel
from sdn.openflow.connections.connection import Finished, Run
from sdn.openflow.switches.flow_mod_queue import BARRIERS, PIECE
from sdn.outcomes import Acknowledged, Failed
from sdn.tables.flows import FlowEntry, FlowOp, Output
from tests.sdn.southbound.support import WAIT, Rig, adds, deletes, entry, rig


class Runs:
    """The sizes of all runs that are sent to a switch from now on, and how many are answered."""

    def __init__(self, r: Rig, switch: str) -> None:
        self.sizes: list[int] = []
        self.answered = 0
        connection = r.driver.connection(switch)
        send = connection.send_ops

        def counted(ops: Sequence[FlowOp], finished: Finished) -> None:
            def answered(run: Run, reason: str | None) -> None:
                self.answered += 1
                finished(run, reason)

            self.sizes.append(len(ops))
            send(ops, answered)

        connection.send_ops = counted  # type: ignore[method-assign]


LATE = {"s2": SwitchModel(acknowledge_after=0.1)}


async def test_small_batches_that_wait_for_barriers_share_the_next_one() -> None:
    async with rig(models=LATE) as r:
        runs = Runs(r, "s2")
        tasks = []
        for number in range(1, 41):
            tasks.append(asyncio.create_task(r.apply("s2", adds(number))))
            await asyncio.sleep(0)  # so that they do not all come in one turn
        early = runs.answered  # mostly none; each lets another run be sent
        assert set(await asyncio.gather(*tasks)) == {Acknowledged()}
        assert sum(runs.sizes) == 40
        assert len(runs.sizes) <= BARRIERS + 2 + early
        await r.agrees("s2", *map(entry, range(1, 41)))


async def test_large_batches_do_not_wait_for_barriers() -> None:
    async with rig(models=LATE) as r:
        runs = Runs(r, "s2")
        numbers = range(1, 4 * PIECE + 11)
        assert await r.apply("s2", adds(*numbers)) == Acknowledged()
        assert runs.sizes == [*[PIECE] * 4, 10]


async def test_errors_in_a_shared_run_go_to_the_batch_that_they_belong_to() -> None:
    async with rig(models=LATE) as r:
        switch = r.network.switches["s2"]
        refused = {entry(6).match, entry(12).match}
        switch.refuse(lambda mod: getattr(mod.entry, "match", None) in refused, times=None)
        runs = Runs(r, "s2")
        batches = [adds(*range(n, n + 3)) for n in range(1, 16, 3)]
        outcomes = await asyncio.gather(*(r.apply("s2", batch) for batch in batches))
        assert runs.sizes == [15]
        places = [set(o.refused) if isinstance(o, Failed) else set() for o in outcomes]
        assert places == [set(), {2}, set(), {2}, set()]
        left = [entry(n) for n in range(1, 16) if n not in (6, 12)]
        await r.agrees("s2", *left)
        await r.driver.audit("s2")
        await r.agrees("s2", *left)


async def test_a_batch_that_cannot_be_encoded_fails_alone_in_a_shared_run() -> None:
    async with rig() as r:
        wrong = [FlowOp(adds(1)[0].change, FlowEntry(1, 1 << 20, None, (Output(1),)))]
        outcomes = await asyncio.gather(
            r.apply("s2", adds(1)), r.apply("s2", wrong), r.apply("s2", adds(2))
        )
        assert [type(o) for o in outcomes] == [Acknowledged, Failed, Acknowledged]
        await r.agrees("s2", entry(1), entry(2))


async def test_two_batches_for_the_same_entries_are_carried_out_in_the_order_they_came() -> None:
    async with rig() as r:
        for _ in range(20):
            outcomes = await asyncio.gather(
                r.apply("s2", adds(1, 2)),
                r.apply("s2", deletes(1)),
                r.apply("s2", adds(1)),
                r.apply("s2", deletes(1, 2)),
                r.apply("s2", adds(2)),
            )
            assert set(outcomes) == {Acknowledged()}
            await r.agrees("s2", entry(2))
            await r.apply("s2", deletes(2))


async def test_thousands_of_packet_ins_do_not_stop_batches() -> None:
    async with rig() as r:
        r.network.switches["s1"].send_packet_ins(bytes(64), 1, count=5_000)
        for number in range(1, 20):
            outcomes = await r.driver.apply("p", 1, {s: adds(number) for s in ("s1", "s2")})
            assert set(outcomes.values()) == {Acknowledged()}


async def test_a_slow_switch_does_not_delay_others() -> None:
    async with rig() as r:
        r.network.switches["s2"].delay(WAIT / 2)
        late = asyncio.create_task(r.apply("s2", adds(*range(1, 31))))
        for number in range(1, 100):
            assert await r.apply("s1", adds(number)) == Acknowledged()
        assert not late.done()
        late.cancel()


async def test_a_slow_switch_completes_a_batch_that_takes_longer_than_an_answer_may() -> None:
    slow = {"s2": SwitchModel(rate=230.0)}  # an answer a second; the machine may pause, too
    async with rig(models=slow, timeout=4.0) as r:
        numbers = range(1, 1_001)
        assert await r.apply("s2", adds(*numbers)) == Acknowledged()
        await r.agrees("s2", *map(entry, numbers))
