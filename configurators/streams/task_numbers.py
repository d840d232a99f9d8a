"""The numbers of tasks: which of two tasks about the same record is the newer one. Pure.

An operation on a record goes through phases, and tells partitions something in some of them. The
number of a task (`Task.seq`) grows with the operations on its record, and with the phases of each.
"""

from enum import IntEnum


class Phase(IntEnum):
    """The phases of an operation, in the order in which their tasks replace each other."""

    GROW = 0  # add: partitions get the old and the new regions together
    SHRINK = 1  # remove: partitions keep only the new regions
    BACK = 2  # undo after a refusal: partitions get the old regions again
    GONE = 3  # withdraw, because the record no longer exists


_PHASES = len(Phase)


def task_number(operation: int, phase: Phase) -> int:
    """The number of the tasks of one phase of an operation, which is given by its `Record.seq`."""
    return operation * _PHASES + phase


def first_number(operation: int) -> int:
    """The lowest number that a task of an operation can have."""
    return operation * _PHASES


def last_number(operation: int) -> int:
    """The highest number that a task of an operation can have."""
    return operation * _PHASES + _PHASES - 1
