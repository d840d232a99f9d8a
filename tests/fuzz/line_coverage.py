"""Which lines of some modules are executed: a small part of what coverage.py does.

The fuzz tests need it for a few thousand inputs now and then, of a handful of modules.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import CodeType, FrameType
from typing import Any

from msgspec import Struct


class Lines(Struct):
    """The lines of some modules, and those that were executed; a line is a file and a number."""

    known: set[tuple[str, int]]
    reached: set[tuple[str, int]]

    @property
    def share(self) -> float:
        """The share of lines that were executed."""
        return len(self.reached & self.known) / len(self.known) if self.known else 0.0


@contextmanager
def traced(modules: Iterable[str]) -> Iterator[Lines]:
    """Trace the lines of functions of these modules while the context lasts."""
    files = {import_module(name).__file__ or "": name for name in modules}
    found = Lines({line for file in files for line in _lines(file)}, set())
    reached = found.reached

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        file = frame.f_code.co_filename
        if file not in files:
            return None
        if event == "line":
            reached.add((file, frame.f_lineno))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield found
    finally:
        sys.settrace(before)


def _lines(file: str) -> Iterator[tuple[str, int]]:
    """The lines inside functions: those of the module itself are executed when it is imported."""
    with open(file) as source:
        whole = compile(source.read(), file, "exec")
    waiting = [code for code in whole.co_consts if isinstance(code, CodeType)]
    while waiting:
        code = waiting.pop()
        waiting += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
        is_function = bool(code.co_flags & 0x2)  # CO_NEWLOCALS: not the body of a class
        if is_function and code.co_flags & 0x1:  # CO_OPTIMIZED
            for *_, line in code.co_lines():
                if line is not None and line > code.co_firstlineno:
                    yield file, line
