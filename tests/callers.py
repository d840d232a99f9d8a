"""Clients that send requests or events all the time, in threads of their own."""

import threading
import time
from collections import Counter
from types import TracebackType
from typing import Self

from dzflow import ControlPlane
from dzflow.sdk.rest.rest import Rest
from tests.service import LIMIT, eventually

_VOLUMES = 1000  # that the schema allows
_QUEUE = 1_000_000  # events that are read in the end only


class RequestLoop:
    """Subscribes and unsubscribes for h1 while the context lasts; every request must succeed."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self.kept: list[str] = []
        self.done = 0
        self.slowest = 0.0  # seconds until a subscription was acknowledged
        self._url, self._token = url, token
        self._error: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        if self._error and error is None:
            raise self._error

    def wait_for_more(self, count: int) -> None:
        """Wait until `count` more subscriptions were acknowledged."""
        goal = self.done + count
        eventually(lambda: self._error or self.done >= goal, f"{count} more requests are done")
        if self._error:
            raise self._error

    def _run(self) -> None:
        try:
            with Rest(self._url, self._token, timeout=LIMIT) as rest:
                while not self._stop.is_set():
                    for price in (self.done % 900, self.done % 700 + 100):
                        begun = time.monotonic()
                        made = rest.begin("subscription", "h1", "stocks", f"price > {price}")
                        self.slowest = max(self.slowest, time.monotonic() - begun)
                        self.kept.append(made["id"])
                        self.done += 1
                    rest.end("subscription", self.kept.pop(0))
        except BaseException as error:
            self._error = error


class EventFlow:
    """h2 publishes and h3 receives while the context lasts: nothing may be lost or doubled."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self._publisher = ControlPlane(url, "h2", token=token, timeout=LIMIT)
        self._receiver = ControlPlane(url, "h3", token=token, timeout=LIMIT)
        self._error: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._sent = 0

    def __enter__(self) -> Self:
        self._wanted = self._receiver.subscribe("stocks", "price > 420", queue=_QUEUE)
        self._advertised = self._publisher.advertise("stocks", "price >= 0")
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        with self._publisher, self._receiver:
            if error is None:
                self._check()

    def _check(self) -> None:
        if self._error:
            raise self._error
        got = Counter(self._wanted.get(LIMIT)["volume"] for _ in range(self._sent))
        assert got == Counter(number % _VOLUMES for number in range(self._sent))
        self._advertised.publish({"price": 600, "volume": 1})
        assert self._wanted.get(LIMIT)["price"] == 600, "nothing has come twice"

    def _run(self) -> None:
        try:
            while not self._stop.wait(0.02):
                self._advertised.publish({"price": 500, "volume": self._sent % _VOLUMES})
                self._sent += 1
        except BaseException as error:
            self._error = error
