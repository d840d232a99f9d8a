"""The blocking SDK and its background thread: several threads, interrupts, forks."""

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from dzflow import ControlPlane
from dzflow.sdk import Rest, background
from dzflow.sdk.background import BackgroundLoop, Portal
from dzflow.sdk.errors import Closed, WrongThread
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


def test_an_interrupt_that_does_not_wake_the_waiting_thread_is_not_lost(
    service: FakeService,
) -> None:
    """As if Ctrl-C came in the instant between the last look for signals and the wait."""
    service.faults.append(lambda _, path: "busy" if path == "/subscribe" else None)
    with subprocess.Popen(
        [
            sys.executable,
            "-W",
            "error",
            "-c",
            f"""
import signal, sys, threading
from dzflow import ControlPlane

def interrupt():
    sys.stdin.readline()
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)

with ControlPlane("{service.url}", host="h1", timeout=3600) as control_plane:
    threading.Thread(target=interrupt).start()
    try:
        control_plane.subscribe("stocks", {{}})
    except KeyboardInterrupt:
        print("interrupted")
""",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        until_sync(lambda: service.count("POST", "/subscribe"))
        try:
            out, err = child.communicate("now\n", timeout=WAIT)
        finally:
            child.kill()
    assert (child.returncode, out, err) == (0, "interrupted\n", "")


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


def in_the_sdks_thread(loop: BackgroundLoop, work: Callable[[], object]) -> None:
    """Call a function where the garbage collector and logging handlers may call applications."""

    async def call() -> None:
        work()

    loop.run(call())


def test_a_blocking_call_in_the_sdks_own_thread_is_refused(service: FakeService) -> None:
    with at(service, "h1") as application:
        application.spaces()
        with pytest.raises(WrongThread, match="__del__"):
            in_the_sdks_thread(background._LOOP, application.spaces)
        assert application.spaces()


def test_closing_in_the_sdks_own_thread_does_not_wait(service: FakeService) -> None:
    application = at(service, "h1")
    subscription = application.subscribe("stocks", {})
    application.subscribe("stocks", {})
    in_the_sdks_thread(background._LOOP, subscription.close)
    until_sync(lambda: len(service.records) == 1)
    in_the_sdks_thread(background._LOOP, application.close)
    until_sync(lambda: not service.records)
    until_sync(lambda: background_threads() == 0)


def test_the_loop_can_be_used_after_its_thread_could_not_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    portal = Portal()

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            portal.run(asyncio.sleep(0))
    assert portal.run(asyncio.sleep(0, "done")) == "done"
    portal.close(asyncio.sleep(0))
    assert background_threads() == 0


def test_the_loop_can_be_used_after_ctrl_c_while_its_thread_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = BackgroundLoop()
    loop.enter()

    def interrupt(_: threading.Thread) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "join", interrupt)
        with pytest.raises(KeyboardInterrupt):
            loop.leave()
    loop.enter()
    assert loop.run(asyncio.sleep(0, "done")) == "done"
    loop.leave()
    until_sync(lambda: background_threads() == 0)


def test_tasks_left_behind_are_cancelled_when_the_thread_ends() -> None:
    loop = BackgroundLoop()
    loop.enter()
    ended: list[str] = []

    async def stay() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cleaned up")

    async def leave_a_task() -> "asyncio.Task[None]":
        task = asyncio.create_task(stay())
        await asyncio.sleep(0)
        return task

    task = loop.run(leave_a_task())
    loop.leave()
    assert task.cancelled()
    assert ended == ["cleaned up"]


def test_a_client_that_was_never_used_closes_silently() -> None:
    ControlPlane("http://127.0.0.1:1").close()
