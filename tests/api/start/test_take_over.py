"""A service whose configurators are killed and paused while requests arrive."""

import os
import signal
from pathlib import Path

from dzflow.sdk.rest.rest import Rest
from tests.callers import RequestLoop
from tests.rest import SCHEMA
from tests.service import eventually, flows, running


def test_requests_go_on_when_configurators_die_or_sleep(tmp_path: Path) -> None:
    with running(tmp_path) as service, Rest(service.url) as rest:

        def pids() -> dict[str, int]:
            found = rest.get("/configurators")["items"]
            return {each["id"]: each["pid"] for each in found if each["state"] == "up"}

        def owners() -> set[str]:
            return {each["configurator"] for each in rest.get("/partitions")["items"]}

        both = {"configurator-1", "configurator-2"}
        # A service is ready with one of them; the other one may come later.
        eventually(lambda: set(pids()) == both, "both are there")
        rest.put_space("stocks", SCHEMA)
        rest.begin("advertisement", "h3", "stocks", "price >= 0")
        assert owners() == both
        with RequestLoop(service.url) as requests:
            requests.wait_for_more(20)
            os.kill(pids()["configurator-1"], signal.SIGKILL)
            requests.wait_for_more(40)
            eventually(lambda: len(pids()) == 2, "both are there again")
            sleeping = pids()["configurator-2"]
            os.kill(sleeping, signal.SIGSTOP)
            try:
                eventually(lambda: owners() == {"configurator-1"}, "the other one has all of it")
                requests.wait_for_more(40)
            finally:
                os.kill(sleeping, signal.SIGCONT)
            eventually(lambda: owners() == both, "it has woken up and been given its share")
            requests.wait_for_more(20)
        states = {record["id"]: record["state"] for record in rest.records("subscription")}
        assert states == dict.fromkeys(requests.kept, "active")
        eventually(
            lambda: flows(service.url, "dp") == flows(service.url, "cp"),
            "the switches hold what they should",
        )
