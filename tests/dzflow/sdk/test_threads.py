"""The blocking SDK and its background thread: several threads, interrupts, forks."""

import signal
import subprocess
import sys
import threading

import pytest

from dzflow import ControlPlane
from dzflow.sdk import Rest
from dzflow.sdk.errors import Closed
from tests.dzflow.sdk.fake_service import FakeService
from tests.dzflow.sdk.support import EVENT, at, prices
from tests.support import WAIT, until_sync


def background_threads() -> int:
    return [thread.name for thread in threading.enumerate()].count("dzflow")


def test_constructing_a_client_starts_nothing_and_all_clients_share_a_thread(
    service: FakeService,
) -> None:
    with Rest(service.url) as one, at(service, "h1") as other:
        assert background_threads() == 0
        one.spaces()
        other.subscribe("stocks", {})
        assert background_threads() == 1
    assert background_threads() == 0


def test_several_threads_use_one_client(service: FakeService) -> None:
    with at(service, "h1") as application:
        opened = []

        def work(number: int) -> None:
            with application.subscribe("stocks", f"price > {number}") as subscription:
                opened.append(subscription.id)
                application.advertise("stocks", {}).publish(EVENT)
                assert prices(subscription, 1) == [500]

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT)
        assert len(set(opened)) == 8
    assert service.records == {}


def test_closing_ends_the_calls_of_other_threads(service: FakeService) -> None:
    service.faults.append(lambda _, path: "busy" if path == "/subscribe" else None)
    application = at(service, "h1")
    outcomes: list[str] = []

    def subscribe() -> None:
        try:
            application.subscribe("stocks", {})
        except Closed:
            outcomes.append("closed")

    thread = threading.Thread(target=subscribe)
    thread.start()
    until_sync(lambda: service.count("POST", "/subscribe"))
    application.close()
    thread.join(WAIT)
    assert outcomes == ["closed"]


def test_a_closed_client_raises_closed(service: FakeService) -> None:
    application = at(service, "h1")
    subscription = application.subscribe("stocks", {})
    application.close()
    application.close()
    subscription.close()
    with pytest.raises(Closed, match="make another one"):
        application.spaces()
    with pytest.raises(Closed):
        application.subscribe("stocks", {})


def run(program: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=WAIT,
    )


def test_ctrl_c_interrupts_a_call_and_leaves_the_client_usable(service: FakeService) -> None:
    program = f"""
import threading, signal
from dzflow import ControlPlane

with ControlPlane("{service.url}", host="h1") as control_plane:
    try:
        print("calling", flush=True)
        control_plane.subscribe("stocks", {{}})
    except KeyboardInterrupt:
        print(len(control_plane.spaces()), flush=True)
"""
    busy = [True]
    service.faults.append(lambda _, path: "busy" if busy[0] and path == "/subscribe" else None)
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        until_sync(lambda: service.count("POST", "/subscribe"))
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=WAIT)
    assert (child.returncode, out, err) == (0, "calling\n1\n", "")


def test_a_child_process_can_have_a_client_of_its_own(service: FakeService) -> None:
    done = run(f"""
import os
from dzflow import ControlPlane

with ControlPlane("{service.url}", host="h1") as parents:
    parents.subscribe("stocks", {{}})
    child = os.fork()
    with ControlPlane("{service.url}", host="h1") as own:
        events = own.subscribe("stocks", {{}})
        own.advertise("stocks", {{}}).publish({{"price": 1, "volume": 1}})
        assert events.get(20)
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
""")
    assert (done.returncode, done.stderr) == (0, "")
    assert service.records == {}


def test_a_child_process_does_not_end_the_records_of_its_parent(service: FakeService) -> None:
    done = run(f"""
import os
from dzflow import ControlPlane
from dzflow.sdk.errors import Closed

parents = ControlPlane("{service.url}", host="h1")
subscription = parents.subscribe("stocks", {{}})
if os.fork() == 0:
    try:
        parents.spaces()
    except Closed as error:
        assert "fork" in str(error)
        subscription.close()
        parents.close()
        os._exit(0)
    os._exit(1)
assert os.wait()[1] == 0
print(len(parents.rest.records("subscription")))
parents.close()
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


def test_a_child_process_neither_receives_nor_publishes_with_the_client_of_its_parent(
    service: FakeService,
) -> None:
    done = run(f"""
import os, signal
from dzflow import ControlPlane
from dzflow.sdk.errors import Closed

event = {{"price": 1, "volume": 1}}
with ControlPlane("{service.url}", host="h1") as parents:
    events = parents.subscribe("stocks", {{}})
    advertisement = parents.advertise("stocks", {{}})
    advertised = parents.advertised("stocks")
    if os.fork() == 0:
        signal.alarm(10)
        refused = 0
        for call in (
            events.get,
            events.__next__,
            lambda: advertisement.publish(event),
            lambda: advertised.publish(event),
        ):
            try:
                call()
            except Closed as error:
                refused += "fork" in str(error)
        os._exit(refused)
    print(os.waitstatus_to_exitcode(os.wait()[1]))
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "4\n", "")


def test_a_client_that_was_never_used_closes_silently() -> None:
    ControlPlane("http://127.0.0.1:1").close()
