"""What partials change: checks them, and finds what each adds and removes. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from configurators.engine.partials import Kind, Partial
from dzflow.errors import BadInput
from dzflow.region import Region
from sdn.network.routes import Routes
from sdn.tables.plans import Plan


class DuplicateId(BadInput):
    """A request whose id is active already."""


class UnknownId(BadInput):
    """A removal or update of something that is not active."""


class MixedSlice(BadInput):
    """A slice with partials of more than one kind, where their order matters."""


class NoRegions(BadInput):
    """A partial that asks for nothing."""


class NotLoadable(BadInput):
    """A partial to be loaded that is not an active subscription or advertisement."""


class Active(NamedTuple):
    """An active subscription or advertisement."""

    advertised: bool
    host: int
    regions: tuple[Region, ...]
    edge: tuple[Region, ...]


class Step(NamedTuple):
    """One elementary change: a host begins (sign 1) or ends (-1) to want or offer regions."""

    sign: int
    advertised: bool
    host: int
    regions: Iterable[Region]
    edge: Iterable[Region]


def check_partials(
    partials: Sequence[Partial],
    active: Mapping[str, Active],
    plan: Plan,
    load: bool = False,
    mixed: bool = False,
) -> None:
    """Raise an error if a slice cannot be decided, or loaded; `mixed` allows several kinds.

    All errors are found here, before anything changes.
    """
    if not (load or mixed) and len({partial.kind for partial in partials}) > 1:
        raise MixedSlice(
            "a slice holds partials of one kind only; cut it where the kind changes, or"
            " decide it with the ordering net"
        )
    seen = set()
    for partial in partials:
        if partial.id in seen:
            raise DuplicateId(f"{partial.id!r} stands twice in one slice; cut it in between")
        seen.add(partial.id)
        new = partial.kind in (Kind.SUBSCRIBE, Kind.ADVERTISE)
        if load and not new:
            raise NotLoadable(f"{partial.id!r}: only what is active can be loaded")
        known = active.get(partial.id)
        if new and known:
            raise DuplicateId(f"{partial.id!r} is active already; update it, or use another id")
        if not new and not known:
            raise UnknownId(f"{partial.id!r} is not active here; it was removed, or never came")
        if known and (wrong := _wrong_kind(partial.kind, known)):
            raise UnknownId(f"{partial.id!r} is not a{wrong}")
        if not partial.kind.removes:
            if not partial.regions:
                raise NoRegions(f"{partial.id!r} names no region in this partition")
            for region in (*partial.regions, *partial.edge):
                plan.check(region)
        if new and not load:
            plan.routes.topology.host(partial.host)


def find_steps(
    partial: Partial, active: Mapping[str, Active], routes: Routes
) -> tuple[Step | None, Step | None]:
    """What a partial adds and what it removes."""
    known = active.get(partial.id)
    if known is None:
        host = routes.host_number(partial.host)
        advertised = partial.kind is Kind.ADVERTISE
        return Step(1, advertised, host, _once(partial.regions), _once(partial.edge)), None
    if partial.kind.removes:
        return None, Step(-1, *known)
    advertised, host = known.advertised, known.host
    grow = Step(
        1,
        advertised,
        host,
        [r for r in _once(partial.regions) if r not in known.regions],
        [r for r in _once(partial.edge) if r not in known.edge],
    )
    shrink = Step(
        -1,
        advertised,
        host,
        [r for r in known.regions if r not in partial.regions],
        [r for r in known.edge if r not in partial.edge],
    )
    return grow, shrink


def note_active(partial: Partial, active: dict[str, Active], routes: Routes) -> None:
    """Enter a partial into the list of active requests."""
    if partial.kind.removes:
        del active[partial.id]
        return
    known = active.get(partial.id)
    if known:
        advertised, host = known.advertised, known.host
    else:
        advertised = partial.kind is Kind.ADVERTISE
        host = routes.host_number(partial.host)
    active[partial.id] = Active(advertised, host, _once(partial.regions), _once(partial.edge))


def _once(regions: tuple[Region, ...]) -> tuple[Region, ...]:
    """Each region once: a request that names a region twice has it once."""
    return regions if len(regions) < 2 else tuple(dict.fromkeys(regions))


def _wrong_kind(kind: Kind, known: Active) -> str:
    if kind is Kind.UNSUBSCRIBE and known.advertised:
        return " subscription but an advertisement; unadvertise it"
    if kind is Kind.UNADVERTISE and not known.advertised:
        return "n advertisement but a subscription; unsubscribe it"
    return ""
