"""How often a thread that waits looks whether Ctrl-C was pressed.

A signal that comes just before Python's main thread begins to wait does not wake it: the interrupt
is raised only when the thread runs again. So no thread of an application waits for longer than this
at a time.
"""

LOOK_AFTER = 0.5  # seconds
