"""Builds the index of a stored version of a space."""

import warnings
from collections.abc import Iterable

from dzflow.errors import LossWarning
from dzflow.index import Index, Shape, build_index
from dzflow.space import Space


def quiet_index(space: Space, version: int, shapes: Iterable[Shape] | None = None) -> Index:
    """The same as `build_index`, without its LossWarning.

    `index.lost` says what is lost; the dispatcher tells the user.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LossWarning)
        return build_index(space, version, shapes)
