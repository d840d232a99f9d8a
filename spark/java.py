"""Finds the Java that Spark will use; `make java` runs this file with any Python."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

OLDEST = 17
_TIMEOUT = 30.0  # seconds


def find_java() -> str | None:
    """The Java of JAVA_HOME, or the first on the path."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home) / "bin") if home else None)


def java_version(java: str) -> int | None:
    """The major version of a Java; None if it does not run, or does not say."""
    try:
        done = subprocess.run(  # noqa: S603 - the program that Spark will start
            [java, "-version"], capture_output=True, text=True, timeout=_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found else None


def java_problem() -> str | None:
    """What is wrong with Java, and what to do; None if Spark can use it."""
    java = find_java()
    version = java_version(java) if java else None
    if version is not None and version >= OLDEST:
        return None
    there = f"{java} is version {version}" if version else "there is none that runs"
    return (
        f"Spark needs Java {OLDEST} or later, and {there}: run `make java` as root on Debian, or"
        f" install openjdk-{OLDEST}-jre-headless, or set JAVA_HOME"
    )


if __name__ == "__main__":
    sys.exit(java_problem())
