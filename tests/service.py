"""The whole service for tests, and what is left of one."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from api.start.settings_sources import load
from api.start.up import Only, Service
from dzflow.sdk import Rest

SCHEMA = {"attributes": [{"name": "price", "type": "float", "min": 0, "max": 1000}]}
LIMIT = 120.0  # seconds that anything here may take


def eventually(condition: Callable[[], Any], what: str) -> Any:
    """Wait until something is so, and give what it is."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"not so within {LIMIT:.0f} s: {what}")


def is_ready(url: str) -> bool:
    """Whether the service is ready without restrictions."""
    try:
        return bool(httpx.get(f"{url}/readyz", timeout=5).json()["status"] == "ready")
    except httpx.TransportError:
        return False


def flows(url: str, source: str) -> list[str]:
    """All entries of the service's spaces on all switches, as the control plane or they tell."""
    found = []
    with Rest(url) as rest:
        for switch in rest.get("/switches")["items"]:
            told = rest.get(f"/switches/{switch['id']}/flows", source=source)
            found += [f"{switch['id']} {flow}" for flow in told["items"] if flow["space"]]
    return sorted(found)


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
                state = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
            if state not in "ZX" and word.encode() in command + b"\0" + variables:
                found[int(entry.name)] = command.replace(b"\0", b" ").decode(errors="replace")
    return found
