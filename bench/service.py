"""The whole service on this machine, started for a benchmark."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from api.start.settings_sources import load
from api.start.up import Service

# What all hosts ask for together is not refused for being too much: what counts is how long it
# takes. What one host may ask for is as it is by default.
_LIMITS = {"queue": 200_000, "wait": 120.0}


@contextmanager
def service(**options: Any) -> Iterator[str]:
    """The service with these settings and all else by default; gives its address."""
    with running(**options) as started:
        yield started.url


@contextmanager
def running(**options: Any) -> Iterator[Service]:
    """The same, for those who need more of it than the address."""
    with TemporaryDirectory(prefix="dzflow-bench-") as folder:
        settings = load(
            options={"port": 0, "data_dir": Path(folder), "limits": _LIMITS, **options},
            environment={},
        )
        with Service(settings) as started:
            yield started
