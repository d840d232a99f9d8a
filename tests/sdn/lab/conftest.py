import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sdn.lab import registry
from sdn.lab.plan import tag_of
from tests.sdn.lab.support import traces


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for the labs of one test, of all of which nothing may be left at its end."""
    tags = []

    def recorded(number: int) -> str:
        tags.append(tag_of(number))
        return tags[-1]

    monkeypatch.setattr(registry, "tag_of", recorded)
    # Not pytest's own folder: its path is too long for the names of sockets.
    with tempfile.TemporaryDirectory(prefix="lab") as folder:
        path = Path(folder) / "labs"
        yield path
        assert [trace for tag in tags for trace in traces(tag, path)] == []
        assert not path.exists()
