"""Stands in for `dzflow` in the tests of the scheduled job: does what the file `how` says.

It is called as `stand_in.py FOLDER trace KIND …`.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

folder = Path(sys.argv[1])
words = sys.argv[2:]
call = {"words": words, "nice": os.nice(0), "pid": os.getpid(), "scratch": os.environ["TMPDIR"]}
how = (folder / "how").read_text()
if how == "hang":
    # As Spark's workers: in another process group, and it does not end with this process.
    command = [sys.executable, "-c", "import signal; signal.pause()", str(folder)]
    call["other"] = subprocess.Popen(command, process_group=0).pid
if "--owners" in words:
    call["owners"] = json.loads(Path(words[words.index("--owners") + 1]).read_text())
with open(folder / "calls", "a") as calls:
    calls.write(json.dumps({**call, "how": how}) + "\n")
print("starting Spark", flush=True)
if how == "hang":
    signal.pause()
if how == "fail":
    sys.exit("error: the traces are not there")
if how == "garbage":
    Path(words[words.index("--json") + 1]).write_text("[]")
if how == "wait":
    (folder / "go").read_text()  # a pipe: until the test writes to it
if how in ("done", "wait"):
    Path(words[words.index("--json") + 1]).write_bytes((folder / "result").read_bytes())
