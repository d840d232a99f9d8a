"""The environment of child processes: what programs need in general, and no secrets.

Everybody who may look at a process (its user, root, tools that collect crash reports) can read its
environment. So a child gets the variables that are listed here, and not all that its parent has.
"""

import os
from collections.abc import Iterable, Mapping

_KEPT = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ"),
        *("TMPDIR", "TMP", "TEMP", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV"),
        *("LD_LIBRARY_PATH", "LD_PRELOAD", "SSL_CERT_FILE", "SSL_CERT_DIR"),
        *("GOMAXPROCS", "GOGC", "GOMEMLIMIT", "GODEBUG", "OMP_NUM_THREADS"),
    }
)
_KEPT_PREFIXES = ("LC_", "PYTHON", "MALLOC_", "GRPC_")


def child_environment(
    more: Iterable[str] = (), given: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The variables that a child process gets; `more` names further ones.

    They are taken from `given`, by default from the environment of this process.
    """
    named = frozenset(more)
    return {
        name: value
        for name, value in (os.environ if given is None else given).items()
        if name in _KEPT or name in named or name.startswith(_KEPT_PREFIXES)
    }
