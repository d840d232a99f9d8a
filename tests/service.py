"""The whole service for tests, and what is left of one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from api.settings_sources import load
from api.up import Only, Service


@contextmanager
def running(
    folder: Path, only: Only | None = None, said: list[str] | None = None, **options: Any
) -> Iterator[Service]:
    """A service of one's own, at a free port; small unless told otherwise."""
    small = {"port": 0, "data_dir": folder, "topology": "line:3"}
    settings = load(options={**small, **options}, environment={})
    tell = (lambda _: None) if said is None else said.append
    with Service(settings, only, tell) as service:
        yield service


def processes_with(word: str) -> dict[int, str]:
    """All processes whose command line or environment has this word, but this one."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes()
                variables = (entry / "environ").read_bytes()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
            if state not in "ZX" and word.encode() in command + b"\0" + variables:
                found[int(entry.name)] = command.replace(b"\0", b" ").decode(errors="replace")
    return found
