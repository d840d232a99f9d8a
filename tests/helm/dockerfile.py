"""The instructions of the Dockerfile, by stage."""

import shlex
from pathlib import Path

from msgspec import Struct, field

from tests.helm.tool import ROOT

PATH = ROOT / "docker" / "Dockerfile"


class Stage(Struct):
    """A stage: what it begins with, and its instructions with their words."""

    base: str
    instructions: list[tuple[str, list[str]]] = field(default_factory=list)

    def all(self, name: str) -> list[list[str]]:
        """The words of all instructions of a kind."""
        return [words for each, words in self.instructions if each == name]

    @property
    def variables(self) -> dict[str, str]:
        """What ENV sets."""
        pairs = (word.partition("=") for words in self.all("ENV") for word in words)
        return {name: value for name, _, value in pairs}


def stages(path: Path = PATH) -> dict[str, Stage]:
    """All stages by name."""
    found: dict[str, Stage] = {}
    stage: Stage | None = None
    for line in path.read_text().replace("\\\n", " ").splitlines():
        name, _, rest = line.strip().partition(" ")
        if not name or name.startswith("#") or name == "ARG":
            continue
        if name == "FROM":
            base, _, called = rest.split()
            stage = found[called] = Stage(base)
        else:
            assert stage is not None
            words = [rest] if name == "RUN" else shlex.split(rest)
            stage.instructions.append((name, words))
    return found
