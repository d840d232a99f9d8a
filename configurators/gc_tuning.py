"""Garbage collection in long-running processes: frozen start-up objects, short passes, few full."""

import gc

# Each pass stops the event loop, and requests leave next to no reference cycles: the passes over
# young objects are kept short (some milliseconds), and the ones over all objects rare.
_YOUNG = 5_000  # objects made, and not freed by themselves, from one pass to the next
_MIDDLE = 3  # such passes before one that includes the objects that survived these
_FULL = 5_000  # such larger passes before one over all objects


def tune_garbage_collector() -> None:
    """Exempt all present objects from collection, and collect others in short passes.

    A service process holds hundreds of thousands of long-lived objects. Python's defaults would
    scan them again and again, which stops the event loop for tens of milliseconds each time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _FULL)
