"""Numbers of tasks: later operations and later phases have higher ones."""

from itertools import pairwise

from configurators.streams.task_numbers import (
    Phase,
    first_number,
    last_number,
    task_number,
)


def test_numbers_grow_with_operations_and_within_each_with_phases() -> None:
    numbers = [task_number(operation, phase) for operation in range(1, 5) for phase in Phase]
    assert all(first < second for first, second in pairwise(numbers))


def test_an_operation_has_all_numbers_between_its_neighbours() -> None:
    assert first_number(7) == task_number(7, Phase.GROW)
    assert last_number(7) == task_number(7, max(Phase))
    assert last_number(6) + 1 == first_number(7)
