"""Runs the command `dzflow` often: each time in a process of its own, which starts quickly.

The processes are forked from one that has imported the command, because that takes a second. Tests
of how the command starts, or that talk with it while it runs, start it themselves.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support import WAIT

_STREAMS = ("stdin", "stdout", "stderr")

_context = get_context("forkserver")
_context.set_forkserver_preload(["dzflow.cli", "dzflow.sdk", __name__])


def run_dzflow(
    *words: object,
    stdin: str = "",
    env: Mapping[str, str] | None = None,
    timeout: float = WAIT,
) -> "subprocess.CompletedProcess[str]":
    """What the command does with these words, an input, and an environment (default: ours)."""
    command = ["dzflow", *map(str, words)]
    with TemporaryDirectory() as folder:
        files = {name: Path(folder, name) for name in _STREAMS}
        files["stdin"].write_text(stdin)
        variables = dict(os.environ if env is None else env)
        process = _context.Process(target=_run, args=(command, variables, os.getcwd(), files))
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(command, timeout)
        out, err = (files[name].read_text() for name in _STREAMS[1:])
    return subprocess.CompletedProcess(command, process.exitcode, out, err)


def _run(
    command: list[str], variables: dict[str, str], folder: str, files: dict[str, Path]
) -> None:
    from dzflow.cli import main

    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    for number, (name, mode) in enumerate(zip(_STREAMS, "rww", strict=True)):
        stream = files[name].open(mode, encoding="utf-8")
        os.dup2(stream.fileno(), number)
        setattr(sys, name, stream)
    sys.argv = command
    main()
