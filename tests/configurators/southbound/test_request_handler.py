"""The request handler keeps the order of a partition's requests."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from configurators.southbound.request_handler import RequestHandler
from configurators.streams.messages import Applied, Apply, Declare
from configurators.streams.packing import pack_ops
from sdn.fence import StaleEpoch
from sdn.outcomes import Acknowledged, Outcome
from sdn.tables.flows import Batch, FlowEntry

PARTITIONS = ("1.0/a", "1.0/b", "1.0/c")
TIMEOUT = 10.0


class Order:
    """A driver that only notes what it is told."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[Any] = asyncio.Queue()
        self.told: list[tuple[str, str]] = []
        self.stale = ""

    def assign(self, switches: Iterable[str], generation: int) -> None:
        pass

    async def declare(
        self,
        partition: str,
        _epoch: int,
        _expected: Mapping[str, Iterable[FlowEntry]],
        _switches: Iterable[str] | None = None,
    ) -> None:
        if partition == self.stale:
            raise StaleEpoch("it is over")
        self.told.append(("declare", partition))

    async def apply(self, partition: str, _epoch: int, batch: Batch) -> dict[str, Outcome]:
        self.told.append(("apply", partition))
        return dict.fromkeys(batch, Acknowledged())

    async def audit(self, *switches: str) -> dict[str, Outcome]:
        return dict.fromkeys(switches, Acknowledged())

    def declared(self, _switch: str) -> Collection[str]:
        return PARTITIONS  # from an earlier owner


def hear_declaration_then_batches(driver: Order) -> list[Any]:
    """A configurator that has just started declares, and goes on with tasks that waited for it."""

    async def run() -> list[Any]:
        handler = RequestHandler(driver)  # type: ignore[arg-type]
        handler.set_switches(["s1"], 1)
        messages = [
            Declare(dict.fromkeys(PARTITIONS, 5), {}, check=True, switches=["s1"]),
            *(Apply(name, 5, {"s1": pack_ops([])}) for name in reversed(PARTITIONS)),
        ]
        heard = [handler.handle(None, message) for message in messages]  # type: ignore[arg-type]
        async with asyncio.timeout(TIMEOUT):
            return await asyncio.gather(*heard)

    return asyncio.run(run())


def test_batches_that_follow_a_declaration_are_carried_out_after_it() -> None:
    driver = Order()
    answers = hear_declaration_then_batches(driver)
    assert all(answer == Applied({"s1": Acknowledged()}) for answer in answers)
    for name in PARTITIONS:
        assert driver.told.index(("declare", name)) < driver.told.index(("apply", name))


def test_a_stale_declaration_does_not_hold_up_batches() -> None:
    driver = Order()
    driver.stale = PARTITIONS[1]
    declared, *applied = hear_declaration_then_batches(driver)
    assert declared.stale
    assert all(answer.outcomes == {"s1": Acknowledged()} for answer in applied)
