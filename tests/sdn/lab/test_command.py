"""`dzflow lab exec`: a command in a host of a running lab, from another process."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sdn.lab import Lab, run_in_host
from sdn.lab.errors import CommandNotFound, LabUnavailable, NoLab, SeveralLabs, UnknownLabHost
from sdn.network.topologies import topology
from tests.sdn.lab.support import SECONDS, needs_lab
from tests.support import until_sync

COMMAND = """
import sys
from pathlib import Path
from sdn.lab import run_in_host
sys.exit(run_in_host("h1", sys.argv[2:], root=Path(sys.argv[1])))
"""

TRAP = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print("ready", flush=True)
signal.pause()
"""


def command(root: Path, *argv: str) -> list[str]:
    return [sys.executable, "-c", COMMAND, str(root), *argv]


def handles(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler of its own for a signal."""
    (mask,) = re.findall(r"^SigCgt:\s*(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.M)
    return bool(int(mask, 16) >> (number - 1) & 1)


@needs_lab
def test_input_and_output_are_passed_through(root: Path) -> None:
    with Lab(topology("line:2"), root=root) as lab:
        script = "cat; ip -brief address show eth0; echo problem >&2"
        done = subprocess.run(
            command(root, "sh", "-c", script),
            input="text\n",
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        )
        assert done.stdout.startswith("text\n")
        assert lab.site("h1").ipv6 in done.stdout
        assert done.stderr == "problem\n"


@needs_lab
def test_the_exit_code_is_that_of_the_command(root: Path) -> None:
    with Lab(topology("line:1"), root=root):
        assert run_in_host("h1", ["true"], root=root) == 0
        assert run_in_host("h1", ["sh", "-c", "exit 3"], root=root) == 3
        assert run_in_host("h1", ["sh", "-c", "kill -9 $$"], root=root) == 128 + 9


@needs_lab
def test_a_command_that_is_told_to_end_may_end_in_its_own_way(root: Path) -> None:
    with (
        Lab(topology("line:1"), root=root),
        subprocess.Popen(
            command(root, sys.executable, "-c", TRAP), stdout=subprocess.PIPE, text=True
        ) as child,
    ):
        assert child.stdout
        assert child.stdout.readline() == "ready\n"
        until_sync(lambda: handles(child.pid, signal.SIGTERM))  # soon after it has started it
        child.send_signal(signal.SIGTERM)
        assert child.wait(SECONDS) == 7


@needs_lab
def test_one_of_several_labs_has_to_be_named(root: Path) -> None:
    with Lab(topology("line:1"), root=root) as one, Lab(topology("line:2"), root=root) as two:
        with pytest.raises(SeveralLabs) as raised:
            run_in_host("h1", ["true"], root=root)
        assert one.tag in str(raised.value)
        assert two.tag in str(raised.value)
        assert run_in_host("h2", ["true"], lab=two.tag, root=root) == 0
        with pytest.raises(NoLab, match="'other'"):
            run_in_host("h1", ["true"], lab="other", root=root)


@needs_lab
def test_a_host_that_is_not_there_is_answered_with_those_that_are(root: Path) -> None:
    with (
        Lab(topology("line:2"), root=root),
        pytest.raises(UnknownLabHost, match="no host 'h3'; it has h1, h2"),
    ):
        run_in_host("h3", ["true"], root=root)


@needs_lab
def test_a_command_that_does_not_exist_is_said_to(root: Path) -> None:
    with Lab(topology("line:1"), root=root):
        with pytest.raises(CommandNotFound, match="'no-such-command'"):
            run_in_host("h1", ["no-such-command"], root=root)
        with pytest.raises(CommandNotFound, match="which command"):
            run_in_host("h1", [], root=root)


@needs_lab
def test_without_a_lab_there_is_no_host(root: Path) -> None:
    with pytest.raises(NoLab, match="no lab is running"):
        run_in_host("h1", ["true"], root=root)


def test_only_root_may_enter_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(LabUnavailable, match="sudo"):
        run_in_host("h1", ["true"])
