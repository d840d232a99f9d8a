"""Work inside a host of a lab that another process of the same service runs."""

import os
import socket
import threading
from pathlib import Path

import pytest

from sdn.lab import Lab, call_in_host
from sdn.lab.errors import LabUnavailable, NoLab, UnknownLabHost
from sdn.lab.namespaces import path_of
from sdn.lab.processes import file_id
from sdn.network.topologies import topology
from tests.sdn.lab.support import SECONDS, needs_lab

HERE = Path("/proc/thread-self/ns/net")


@needs_lab
def test_the_work_is_done_in_the_host_of_the_services_own_lab(root: Path) -> None:
    before = file_id(HERE)
    with (
        Lab(topology("line:1"), root=root, service="one"),
        Lab(topology("line:2"), root=root, service="two") as lab,
        lab.socket("h2") as listener,
    ):
        listener.bind(("::", 9))
        listener.settimeout(SECONDS)

        def work() -> tuple[int, int]:
            with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sender:
                sender.sendto(b"here", (lab.site("h2").ipv6, 9))
            return file_id(HERE)

        there = file_id(path_of(lab.site("h2").namespace))
        threads = threading.active_count()
        assert call_in_host("two", "h2", work, root) == there
        assert listener.recv(100) == b"here"
        assert file_id(HERE) == before != there
        assert threading.active_count() == threads
        with pytest.raises(UnknownLabHost, match="it has h1"):
            call_in_host("one", "h2", work, root)


@needs_lab
def test_a_lab_of_another_service_or_of_none_is_left_alone(root: Path) -> None:
    with (
        Lab(topology("line:1"), root=root),
        Lab(topology("line:1"), root=root, service="other"),
        pytest.raises(NoLab, match="of this service"),
    ):
        call_in_host("one", "h1", os.getpid, root)


def test_without_a_lab_nothing_is_done(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(NoLab):
        call_in_host("one", "h1", os.getpid, root)


def test_only_root_enters(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(LabUnavailable, match="only root"):
        call_in_host("one", "h1", os.getpid, root)
