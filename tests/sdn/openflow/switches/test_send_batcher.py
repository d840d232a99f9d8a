"""Rounds in which the driver sends waiting operations."""

import asyncio

import pytest

from sdn.openflow.switches.send_batcher import SendBatcher


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


def test_after_a_pause_the_round_is_at_once(clock: Clock) -> None:
    batcher, called = SendBatcher(), list[int]()
    batcher.schedule(lambda: called.append(1))
    clock.run()
    assert called == [1]
    assert not clock.timers


@pytest.mark.parametrize(("switches", "pause"), [(1, 0.0001), (50, 0.005), (1_000, 0.01)])
def test_the_more_calls_a_round_has_the_later_is_the_next(
    clock: Clock, switches: int, pause: float
) -> None:
    batcher, called = SendBatcher(), list[int]()
    for number in range(switches):
        batcher.schedule(lambda n=number: called.append(n))  # type: ignore[misc]
    clock.run()
    assert called == list(range(switches))
    batcher.schedule(lambda: called.append(-1))
    batcher.schedule(lambda: called.append(-2))
    assert called[-1] >= 0
    assert clock.move_on() == pytest.approx(pause)
    assert called[-2:] == [-1, -2]


async def test_a_call_that_fails_does_not_stop_the_others() -> None:
    failures: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, about: failures.append(about["exception"]))
    batcher = SendBatcher()
    batcher.schedule(lambda: print(1 // 0))
    done = asyncio.Event()
    batcher.schedule(done.set)
    await done.wait()
    assert [type(error) for error in failures] == [ZeroDivisionError]
