"""All processes of a session are found and killed, and no others."""

import os
import subprocess
import sys

import pytest

from dzflow.process.sessions import kill_others
from tests.support import until_sync

NOBODY = 65_534
HIDING = ("unshare", "--mount", "sh", "-c")
LEADER = """
import signal, subprocess, sys
subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], process_group=0)
print("started", flush=True)
signal.pause()
"""
AS_NOBODY = f"""
import os, subprocess, sys
from dzflow.process.sessions import kill_others
os.setgroups([])
os.setgid({NOBODY})
os.setuid({NOBODY})
with subprocess.Popen(["sleep", "600"], start_new_session=True) as leader:
    try:
        print(kill_others(leader.pid))
    finally:
        leader.kill()
"""


def hides_processes() -> bool:
    """Whether processes of others can be hidden here, as operators do it on shared machines."""
    if os.geteuid() != 0:
        return False
    tried = subprocess.run([*HIDING, "mount -t proc -o hidepid=1 proc /proc"], capture_output=True)
    return tried.returncode == 0


def test_processes_that_the_first_one_has_started_are_killed_and_not_itself() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LEADER], stdout=subprocess.PIPE, start_new_session=True
    ) as leader:
        try:
            assert leader.stdout
            assert leader.stdout.readline() == b"started\n"
            assert kill_others(leader.pid)
            until_sync(lambda: not kill_others(leader.pid))
            assert leader.poll() is None
        finally:
            leader.kill()


@pytest.mark.skipif(not hides_processes(), reason="needs root, and its own mounts")
def test_processes_of_others_may_be_hidden() -> None:
    mount = 'mount -t proc -o hidepid=1 proc /proc && exec "$0" -c "$1"'
    done = subprocess.run(
        [*HIDING, mount, sys.executable, AS_NOBODY], capture_output=True, text=True
    )
    assert done.stdout == "False\n", done.stderr
