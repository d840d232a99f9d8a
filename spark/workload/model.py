"""A workload that was rebuilt from traces: its requests, and what is known about it. Pure."""

from msgspec import Struct

BEGINS = ("subscribe", "advertise")
UPDATE = "update"
ENDS = ("unsubscribe", "unadvertise")


class WorkloadRequest(Struct, frozen=True, gc=False):
    """One request, with the columns of the file in their order."""

    at_us: int  # when it arrived, in microseconds since 1970
    kind: str
    space: str
    host: str
    target_id: str  # the record that it begins, changes or ends
    filter: str  # as JSON; of an update, the new one


class LeftOut(Struct, frozen=True):
    """Traced requests that the workload does not have."""

    refused: int = 0  # by a switch: they had no effect
    began_before: int = 0  # ends of records that began before the traces
    unknown: int = 0  # of kinds that this release does not know


class WorkloadAbout(Struct, frozen=True):
    """What is known about a workload, beside its requests."""

    requests: dict[str, int]  # by kind
    left_out: LeftOut = LeftOut()
    first_seen: int = 0  # changes of records that began before the traces; each begins one here
    moved: int = 0  # requests that a clock had put before an earlier one of the same record
    hosts: tuple[str, ...] = ()
    slice_size: int = 1  # the mean number of partials in a traced slice
    owners: dict[str, str] = {}  # the last configurator of each partition; none in mode `sea`

    @property
    def total(self) -> int:
        """How many requests there are."""
        return sum(self.requests.values())
