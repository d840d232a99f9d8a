"""Returns unused memory to the operating system."""

import ctypes


def return_free_memory() -> None:
    """Return free pages of the heap to the operating system (glibc's `malloc_trim`).

    glibc keeps free pages that lie between long-lived objects. With other C libraries, this does
    nothing.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
