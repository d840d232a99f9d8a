"""Whether a step of a plan is over: no event needs what is left of the former map. Pure."""

from collections.abc import Collection, Mapping

from msgspec import Struct

from configurators.store.model import NetworkDoc
from configurators.streams.messages import Load, SwitchReport


class Reports(Struct, frozen=True):
    """What all processes that are alive have reported last; None if one has not reported yet."""

    southbound: Mapping[str, SwitchReport | None]
    configurators: Mapping[str, Load | None]


def why_unsettled(
    added: Collection[str],
    revision: int,
    owners: Mapping[str, tuple[str, int]],
    network: NetworkDoc | None,
    reports: Reports,
) -> str:
    """Why a step of a plan is not over; empty if it is.

    All processes must know the map (`revision` is that of its document): then no former owner can
    change a switch. All switches must have the entries of all new partitions (`added`; none if the
    step was undone). One that is away, and not lost, must come back before: it goes on forwarding.
    """
    up: set[str] = set()
    for name, report in sorted(reports.southbound.items()):
        if report is None or report.spaces < revision:
            return f"southbound process {name} does not know the map yet"
        up.update(report.switches)
    for name, load in sorted(reports.configurators.items()):
        if load is None or load.spaces < revision:
            return f"{name} does not know the map yet"
    if not added:
        return ""
    if network is None:
        return "there is no network yet"
    away = {switch.id for switch in network.switches} - up - {*network.lost.switches}
    if away:
        return f"switches are away: {', '.join(sorted(away))}"
    in_place = {
        (one.partition, one.epoch)
        for load in reports.configurators.values()
        if load and load.declared
        for one in load.partitions
        if one.state != "loading"
    }
    for name in added:
        if name not in owners or (name, owners[name][1]) not in in_place:
            return f"not all switches have the entries of partition {name} yet"
    return ""


def refusal(reports: Reports) -> str:
    """Why a switch does not take what it should hold; empty if there is none."""
    for report in reports.southbound.values():
        for switch, reason in sorted(report.refusing.items() if report else ()):
            return f"switch {switch} does not take what it should hold: {reason}"
    return ""


def cleaned(revision: int, reports: Reports) -> bool:
    """Whether switches have nothing left of maps before that of a revision."""
    return all(report and report.cleaned >= revision for report in reports.southbound.values())
