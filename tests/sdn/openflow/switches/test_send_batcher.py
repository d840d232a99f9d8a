"""Turns in which switches are sent what waits for them."""

import asyncio

import pytest

from sdn.openflow.switches.send_batcher import Pulse


class Clock:
    """A loop of which only the time counts; timers are called when it is moved on."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ready: list[object] = []
        self.timers: list[tuple[float, object]] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, call: object) -> None:
        self.ready.append(call)

    def call_at(self, when: float, call: object) -> None:
        self.timers.append((when, call))

    def run(self) -> None:
        while self.ready:
            self.ready.pop(0)()  # type: ignore[operator]

    def move_on(self) -> float:
        """To the next timer; how long that took."""
        ((when, call),) = self.timers
        self.timers.clear()
        took, self.now = when - self.now, when
        self.ready.append(call)
        self.run()
        return took


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: clock)
    return clock


def test_after_a_pause_it_is_at_once(clock: Clock) -> None:
    pulse, told = Pulse(), list[int]()
    pulse.soon(lambda: told.append(1))
    clock.run()
    assert told == [1]
    assert not clock.timers


@pytest.mark.parametrize(("switches", "pause"), [(1, 0.0001), (50, 0.005), (1_000, 0.01)])
def test_the_more_there_were_the_later_the_next_turn_is(
    clock: Clock, switches: int, pause: float
) -> None:
    pulse, told = Pulse(), list[int]()
    for number in range(switches):
        pulse.soon(lambda n=number: told.append(n))  # type: ignore[misc]
    clock.run()
    assert told == list(range(switches))
    pulse.soon(lambda: told.append(-1))
    pulse.soon(lambda: told.append(-2))
    assert told[-1] >= 0
    assert clock.move_on() == pytest.approx(pause)
    assert told[-2:] == [-1, -2]


def test_one_that_fails_is_no_matter_of_the_others() -> None:
    async def main() -> list[object]:
        failures: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, about: failures.append(about["exception"]))
        pulse = Pulse()
        pulse.soon(lambda: print(1 // 0))
        done = asyncio.Event()
        pulse.soon(done.set)
        await asyncio.wait_for(done.wait(), 10)
        return [type(error) for error in failures]

    assert asyncio.run(main()) == [ZeroDivisionError]
