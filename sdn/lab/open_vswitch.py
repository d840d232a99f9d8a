"""An Open vSwitch of one's own, apart from any other on the machine."""

from __future__ import annotations

import socket as sockets
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dzflow.process.child_environment import child_environment
from sdn.lab.errors import LabCommandFailed
from sdn.lab.namespaces import NamespaceThread
from sdn.lab.plan import Command
from sdn.lab.run import TIMEOUT, run

_DATABASE, _SWITCH = "ovsdb-server", "ovs-vswitchd"


class OpenVSwitch:
    """Database and switch daemon in a folder, and the programs that talk to them.

    The owner of the starter ends the daemons.
    """

    def __init__(self, folder: Path, starter: NamespaceThread) -> None:
        self._folder = folder
        self._starter = starter
        self._env = {
            f"OVS_{name}": str(folder) for name in ("RUNDIR", "LOGDIR", "DBDIR", "SYSCONFDIR")
        }
        self._remote = f"unix:{folder / 'db.sock'}"
        self._daemons: dict[str, subprocess.Popen[Any]] = {}
        self._starts = 0

    def start_database(self) -> None:
        """Start the database; it answers when the function returns."""
        file = str(self._folder / "conf.db")
        run(["ovsdb-tool", "create", file], env=self._env)
        self._start(_DATABASE, f"--remote=p{self._remote}", file)
        self._await(_DATABASE, self._folder / "db.sock")

    def start_switch(self) -> None:
        """Start the switch daemon without waiting for it; it builds what the database says."""
        # The option makes the type of datapath known that the plan's switches have.
        self._start(_SWITCH, "--enable-dummy", self._remote)

    def await_switch(self) -> None:
        """Wait until the switch daemon has built what the database says."""
        self._await(_SWITCH, self._folder / f"{_SWITCH}.ctl")
        # A change is acknowledged when the daemon is done with it and all before it.
        self._starts += 1
        self.vsctl([["set", "open_vswitch", ".", f"external-ids:starts={self._starts}"]])

    def kill_switch(self) -> None:
        """Kill the switch daemon, as a power cut would."""
        process = self._daemons[_SWITCH]
        process.kill()
        process.wait(TIMEOUT)

    def vsctl(self, commands: Sequence[Command]) -> str:
        """Change or ask the database in one transaction; the switches have followed on return."""
        argv = ["ovs-vsctl", f"--db={self._remote}", f"--timeout={TIMEOUT:.0f}"]
        for command in commands:
            argv += ["--", *command]
        done = run(argv, env=self._env)
        # It reports success even when the daemon could not build a port.
        if "Error detected" in done.stderr:
            raise LabCommandFailed(f"{done.stderr.strip()[:1000]}\n{self._complaints(_SWITCH)}")
        return done.stdout

    def ofctl(self, protocol: str, arguments: Sequence[str], stdin: str = "") -> str:
        """Talk OpenFlow to a bridge."""
        argv = ["ovs-ofctl", "-O", protocol, f"--timeout={TIMEOUT:.0f}", *arguments]
        return run(argv, stdin, env=self._env).stdout

    def appctl(self, *arguments: str) -> str:
        """Tell or ask the switch daemon itself."""
        control = str(self._folder / f"{_SWITCH}.ctl")
        argv = ["ovs-appctl", "-t", control, f"--timeout={TIMEOUT:.0f}", *arguments]
        return run(argv, env=self._env).stdout

    def _start(self, daemon: str, *arguments: str) -> None:
        path = self._folder / daemon
        argv = [
            *(daemon, f"--log-file={path}.log", f"--unixctl={path}.ctl"),
            *("-vconsole:off", "-vsyslog:off"),
            *arguments,
        ]
        with Path(f"{path}.out").open("ab") as output:
            self._daemons[daemon] = self._starter.popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**child_environment(), **self._env},
                # Ctrl-C is for the lab's process, which ends the daemons in good order.
                start_new_session=True,
            )

    def _await(self, daemon: str, path: Path) -> None:
        """Wait until a daemon listens at a socket."""
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            with sockets.socket(sockets.AF_UNIX) as trial:
                try:
                    trial.connect(str(path))
                    return
                except (FileNotFoundError, ConnectionRefusedError):
                    pass
            code = self._daemons[daemon].poll()
            if code is not None:
                raise LabCommandFailed(
                    f"{daemon} ended with code {code}:\n{self._complaints(daemon)}"
                )
            time.sleep(0.002)
        raise LabCommandFailed(f"{daemon} does not answer within {TIMEOUT:.0f} s")

    def _complaints(self, daemon: str) -> str:
        """The last complaints in a daemon's log and output."""
        lines = []
        for suffix in ("log", "out"):
            path = self._folder / f"{daemon}.{suffix}"
            if path.exists():
                lines += path.read_text(errors="replace").splitlines()
        return "\n".join([line for line in lines if "|INFO|" not in line][-10:])
