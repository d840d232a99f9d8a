"""What is missing for a lab is said all at once, with what to do."""

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sdn.lab import Lab, missing_prerequisites, prerequisites
from sdn.lab.errors import LabCommandFailed, LabUnavailable
from sdn.lab.run import run
from sdn.network.topologies import topology


def test_everything_that_is_missing_is_named_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, root: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(prerequisites, "find", lambda _: None)
    rights, *programs = missing_prerequisites()
    assert "root" in rights
    said = " ".join(programs)
    for package in ("openvswitch-switch", "iproute2", "ethtool"):
        assert f"apt-get install {package}" in said
    with pytest.raises(LabUnavailable, match="openvswitch-switch"):
        Lab(topology("line:1"), root=root).start()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.EPERM, "not permitted"), "network namespaces are not allowed"),
        (LabCommandFailed("no veth"), "no veth pair"),
    ],
)
def test_a_machine_that_forbids_namespaces_is_found_out(
    monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    def refuse(_: Callable[[], object]) -> object:
        raise error

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(prerequisites, "find", lambda program: program)
    monkeypatch.setattr(prerequisites, "in_new_namespace", refuse)
    (found,) = missing_prerequisites()
    assert said in found


def test_other_systems_than_linux_have_no_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    (found,) = missing_prerequisites()
    assert "not Linux" in found


def test_a_program_that_is_not_there_is_named_when_it_is_run() -> None:
    with pytest.raises(LabCommandFailed, match="no-such-program is not on this machine"):
        run(["no-such-program"])
