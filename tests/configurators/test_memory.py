"""Unused memory is returned to the operating system."""

import subprocess
import sys

# In a process of its own: elsewhere, other objects would decide what can be returned.
_PROGRAM = """
from pathlib import Path
from configurators.memory import return_free_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1])

small = [bytes(2_000) for _ in range(50_000)]
small = small[::50]  # what stays lies all over the memory
before = resident()
return_free_memory()
print(resident() / before)
"""


def test_pages_between_objects_that_stay_are_returned() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True
    )
    assert float(done.stdout) < 0.5
