"""Which workers are to leave, from how many there should be.

Workers of a kind are numbered from 1. When fewer are wanted, those with the highest numbers leave:
every process computes the same ones from the same count.
"""

import logging
import re
from collections.abc import Iterable

from configurators.store.documents import BadDocument, decode_wanted
from configurators.store.model import Wanted

log = logging.getLogger(__name__)

MAX_WORKERS = 64
"""The most workers of one kind."""

_NUMBER = re.compile(r"\d+$")


def read_count(stored: bytes | None) -> int | None:
    """How many workers are wanted; None if nothing is stored, or nothing that can be read."""
    wanted = read_wanted(stored)
    return wanted.count if wanted else None


def read_wanted(stored: bytes | None) -> Wanted | None:
    """What is stored about the workers that are wanted; None as for `read_count`."""
    if stored is None:
        return None
    try:
        return decode_wanted(stored)
    except BadDocument as error:
        log.error("it is not known how many workers are wanted, so all stay: %s", error)
        return None


def leaving(ids: Iterable[str], wanted: int | None) -> frozenset[str]:
    """The workers that are to leave; none while it is not known how many are wanted.

    They finish their work, get no more, and end when they have none.
    """
    if wanted is None:
        return frozenset()
    return frozenset(id for id in ids if _number(id) > wanted)


def staying(ids: Iterable[str], wanted: int | None) -> frozenset[str]:
    """The workers that get work: those that do not leave, or all if there are no others."""
    known = frozenset(ids)
    return known - leaving(known, wanted) or known


def _number(id: str) -> int:
    """The number of a worker, as in `configurator-3`; 0 if its id has none."""
    found = _NUMBER.search(id)
    return int(found[0]) if found else 0
