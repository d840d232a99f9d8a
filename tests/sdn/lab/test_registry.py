"""What a killed process leaves behind is removed, and nothing else is."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from sdn.lab import Lab, clean_leftovers
from sdn.lab.errors import LabError
from sdn.lab.processes import Owner, all_processes, arguments
from sdn.lab.registry import register, running, unregister
from sdn.network.topologies import topology
from tests.sdn.lab.support import SECONDS, needs_lab, traces, watched

OWNER = """
import sys
from pathlib import Path
from sdn.lab import Lab
from sdn.network.topologies import topology

with Lab(topology("line:2"), root=Path(sys.argv[1])) as lab:
    # A process that survives its parents.
    lab.exec("h1", ["sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 &"])
    print(lab.tag, flush=True)
    sys.stdin.read()
"""


@contextmanager
def other_owner(root: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that runs a lab until its input ends, and the lab's name."""
    command = [sys.executable, "-c", OWNER, str(root)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as owner:
        try:
            assert owner.stdout
            yield owner, owner.stdout.readline().strip()
        finally:
            owner.kill()
            owner.wait(SECONDS)
            clean_leftovers(root)


@needs_lab
def test_the_next_lab_removes_what_a_killed_one_left_behind(root: Path) -> None:
    with (
        Lab(topology("line:2"), root=root) as bystander,
        other_owner(root) as (owner, tag),
    ):
        before = traces(bystander.tag, root)
        owner.kill()
        owner.wait(SECONDS)
        assert any(trace.startswith("namespace") for trace in traces(tag, root))
        with Lab(topology("line:1"), root=root):
            assert traces(tag, root) == []
            assert traces(bystander.tag, root) == before
            assert bystander.exec("h2", ["echo", "here"]).stdout == "here\n"


@needs_lab
def test_the_switches_of_a_killed_owner_end_at_once(root: Path) -> None:
    with other_owner(root) as (owner, tag), ExitStack() as stack:
        daemons = [pid for pid in all_processes() if any(tag in word for word in arguments(pid))]
        assert len(daemons) == 2
        polls = [stack.enter_context(watched(pid)) for pid in daemons]
        owner.kill()
        for poll in polls:
            assert poll.poll(SECONDS * 1000)


@needs_lab
def test_a_lab_of_a_living_process_is_no_leftover(root: Path) -> None:
    with other_owner(root) as (owner, tag):
        before = traces(tag, root)
        assert clean_leftovers(root) == []
        assert traces(tag, root) == before
        assert [record.tag for record in running(root)] == [tag]
        # It ends in good order when its owner does.
        owner.communicate(timeout=SECONDS)
        assert owner.returncode == 0
        assert traces(tag, root) == []


@needs_lab
def test_a_killed_owner_that_nobody_has_waited_for_counts_as_dead(root: Path) -> None:
    with other_owner(root) as (owner, tag), watched(owner.pid) as poll:
        owner.kill()
        assert poll.poll(SECONDS * 1000)
        assert clean_leftovers(root) == [tag]
        assert traces(tag, root) == []


def test_an_owner_whose_number_is_used_again_is_dead() -> None:
    me = Owner.current()
    assert me.is_alive()
    assert not Owner(me.pid, me.started + 1, me.boot).is_alive()
    assert not Owner(me.pid, me.started, "another boot").is_alive()


def test_nothing_is_cleaned_where_there_was_never_a_lab(root: Path) -> None:
    assert clean_leftovers(root) == []
    assert running(root) == []


def test_a_process_that_only_mentions_a_lab_is_spared(root: Path) -> None:
    _, record, folder = register(topology("line:1"), root)
    with subprocess.Popen(["tail", "--follow=name", "--retry", folder / "log"]) as stranger:
        unregister(record, root)
        assert stranger.poll() is None
        stranger.send_signal(signal.SIGTERM)


def test_a_folder_without_a_record_is_removed(root: Path) -> None:
    (root / "dzlaaaa").mkdir(parents=True)
    root.chmod(0o700)
    clean_leftovers(root)
    assert not root.exists()


def test_a_record_that_cannot_be_read_is_left_alone(root: Path) -> None:
    _, record, folder = register(topology("line:1"), root)
    whole = (folder / "lab.json").read_bytes()
    (folder / "lab.json").write_bytes(b"{}")
    with pytest.raises(LabError, match=r"lab\.json cannot be read"):
        clean_leftovers(root)
    assert folder.exists()
    (folder / "lab.json").write_bytes(whole)
    unregister(record, root)


def test_a_folder_that_others_can_write_is_not_trusted(root: Path) -> None:
    root.mkdir()
    root.chmod(0o777)
    with pytest.raises(LabError, match="another user"):
        register(topology("line:1"), root)
    root.rmdir()


def test_a_link_in_the_place_of_the_folder_is_not_followed(root: Path, tmp_path: Path) -> None:
    os.symlink(tmp_path, root)
    with pytest.raises(OSError, match=r"Not a directory|symbolic link"):
        register(topology("line:1"), root)
    root.unlink()
