"""The spaces that traces describe, and which of them a job works on."""

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from configurators.state.trace_spaces import (
    BadTraceSpaces,
    TraceSpace,
    TraceVersion,
    decode_footer,
)
from configurators.store.keys import PartitionName
from dzflow.errors import BadInput
from dzflow.index import Index
from spark.shapes.model import Proposal
from spark.traces import Traces

MOST_SPACES = 16  # for which a job makes a proposal


class UnknownTraceSpace(BadInput):
    """A space that the traces do not describe."""


class UnfitShapes(BadInput):
    """A dictionary of shapes that does not fit the space that it is for."""


class IndexedSpace(Struct, frozen=True):
    """A space that the traces describe: the version in force, and its index."""

    number: int
    version: int
    stored: TraceVersion
    index: Index

    def partition(self, leaf: str) -> str:
        """The global name of a partition."""
        return str(PartitionName(self.number, self.version, leaf))


def described_spaces(traces: Traces, wanted: str = "") -> tuple[dict[str, TraceSpace], str]:
    """The spaces that the newest file describes; if none can be read, the reason as a text.

    If one is wanted, only this one; UnknownTraceSpace if it is not described.
    """
    if not traces.footer:
        return {}, "no file describes the spaces; files of earlier releases do not"
    footer = {key.encode(): value.encode() for key, value in traces.footer.items()}
    try:
        found = decode_footer(footer)
    except BadTraceSpaces as error:
        return {}, str(error)
    if wanted and wanted not in found:
        names = ", ".join(sorted(found)) or "none"
        raise UnknownTraceSpace(f"the traces do not describe a space {wanted!r}; there is {names}")
    return {wanted: found[wanted]} if wanted else found, ""


def indexed_spaces(
    traces: Traces, wanted: str, none_usable: str, one_unusable: str
) -> tuple[dict[str, IndexedSpace], list[str]]:
    """The described spaces whose index can be made, and notices about the others.

    A notice begins with `none_usable`, or with `one_unusable`, in which `{}` is the name of a
    space. UnknownTraceSpace if the space that is wanted is not described.
    """
    described, unknown = described_spaces(traces, wanted)
    if unknown:
        return {}, [f"{none_usable}: {unknown}."]
    found = {}
    notices = []
    for name, space in sorted(described.items()):
        stored = space.versions[space.current]
        try:
            index = stored.index(name, space.current)
        except BadTraceSpaces as error:
            notices.append(f"{one_unusable.format(name)}: {error}.")
        else:
            found[name] = IndexedSpace(space.number, space.current, stored, index)
    return found, notices


def with_shapes(
    spaces: Mapping[str, IndexedSpace], proposals: Iterable[Proposal]
) -> dict[str, IndexedSpace]:
    """The spaces as they would be with the dictionaries that are proposed for some of them.

    UnfitShapes if one is for none of these spaces, or does not fit it.
    """
    found = dict(spaces)
    for each in proposals:
        name, space = each.space, found.get(each.space)
        if space is None:
            raise UnfitShapes(f"there are shapes for the space {name!r}, which is not planned")
        if each.version != space.version:
            raise UnfitShapes(
                f"the shapes for {name} are for version {each.version} of its index, and the traces"
                f" describe version {space.version}: learn them again"
            )
        stored = replace(space.stored, shapes=each.shapes)
        try:
            index = stored.index(name, space.version)
        except BadTraceSpaces as error:
            raise UnfitShapes(f"the shapes for {name} cannot be used: {error}") from None
        found[name] = replace(space, stored=stored, index=index)
    return found


def heaviest_spaces(weights: Mapping[str, float], left_out: str) -> tuple[list[str], list[str]]:
    """The names of up to MOST_SPACES spaces, the heaviest first.

    If there are more, a notice says how many spaces `left_out`.
    """
    names = sorted(weights, key=lambda name: (-weights[name], name))
    rest = len(names) - MOST_SPACES
    return names[:MOST_SPACES], [f"{rest} spaces {left_out}."] if rest > 0 else []
