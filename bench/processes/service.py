"""Starts the whole service on this machine, for a benchmark."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from api.start.settings.sources import load
from api.start.up import Service

# Queues are long enough that the service refuses nothing: the benchmark measures how long requests
# take. The limits per host are the defaults.
_LIMITS = {"queue": 200_000, "wait": 120.0}


@contextmanager
def running_url(**options: Any) -> Iterator[str]:
    """Run a service with these settings, and yield its URL."""
    with running_service(**options) as started:
        yield started.url


@contextmanager
def running_service(**options: Any) -> Iterator[Service]:
    """Run a service with these settings. All other settings have their defaults."""
    with TemporaryDirectory(prefix="dzflow-bench-") as folder:
        settings = load(
            options={"port": 0, "data_dir": Path(folder), "limits": _LIMITS, **options},
            environment={},
        )
        with Service(settings) as started:
            yield started
