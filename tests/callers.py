"""A client that sends requests all the time, in a thread of its own."""

import threading
from types import TracebackType
from typing import Self

from dzflow.sdk.rest.rest import Rest
from tests.service import eventually


class RequestLoop:
    """Subscribes and unsubscribes for h1 while the context lasts; every request must succeed."""

    def __init__(self, url: str) -> None:
        self.kept: list[str] = []
        self.done = 0
        self._url = url
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
            with Rest(self._url) as rest:
                while not self._stop.is_set():
                    for price in (self.done % 900, self.done % 700 + 100):
                        made = rest.begin("subscription", "h1", "stocks", f"price > {price}")
                        self.kept.append(made["id"])
                        self.done += 1
                    rest.end("subscription", self.kept.pop(0))
        except BaseException as error:
            self._error = error
