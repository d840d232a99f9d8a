"""A service whose configurators are killed and stopped while requests come."""

import os
import signal
import threading
from pathlib import Path

from dzflow.sdk.rest import Rest
from tests.rest import SCHEMA
from tests.service import eventually, running


class Requests:
    """Subscribes and unsubscribes until it is stopped; every call must succeed."""

    def __init__(self, url: str) -> None:
        self.kept: list[str] = []
        self.done = 0
        self._url = url
        self._error: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def more(self, count: int) -> None:
        goal = self.done + count
        eventually(lambda: self._error or self.done >= goal, f"{count} more requests are done")
        if self._error:
            raise self._error

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
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


def test_requests_go_on_when_configurators_die_or_sleep(tmp_path: Path) -> None:
    with running(tmp_path) as service, Rest(service.url) as rest:
        rest.put_space("stocks", SCHEMA)
        rest.begin("advertisement", "h3", "stocks", "price >= 0")

        def pids() -> dict[str, int]:
            found = rest.get("/configurators")["items"]
            return {each["id"]: each["pid"] for each in found if each["state"] == "up"}

        def owners() -> set[str]:
            return {each["configurator"] for each in rest.get("/partitions")["items"]}

        def flows(source: str) -> list[str]:
            return sorted(
                str(flow)
                for switch in ("s1", "s2", "s3")
                for flow in rest.get(f"/switches/{switch}/flows", source=source)["items"]
            )

        assert owners() == {"configurator-1", "configurator-2"}
        requests = Requests(service.url)
        requests.more(20)
        os.kill(pids()["configurator-1"], signal.SIGKILL)
        requests.more(100)
        eventually(lambda: len(pids()) == 2, "both are there again")
        sleeping = pids()["configurator-2"]
        os.kill(sleeping, signal.SIGSTOP)
        try:
            eventually(lambda: owners() == {"configurator-1"}, "the other one has all of it")
            requests.more(100)
        finally:
            os.kill(sleeping, signal.SIGCONT)
        eventually(lambda: len(pids()) == 2, "it has woken up")
        requests.more(20)
        assert owners() == {"configurator-1"}, "it does not take anything back by itself"
        requests.stop()
        states = {record["id"]: record["state"] for record in rest.records("subscription")}
        assert states == dict.fromkeys(requests.kept, "active")
        eventually(lambda: flows("dp") == flows("cp"), "the switches hold what they should")
