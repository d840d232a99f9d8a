"""When the job runs next. Pure."""

from monitor.jobs.state import JobState


def seconds_until_due(
    every: float, now: float, leads_since: float, state: JobState | None
) -> float:
    """How long to wait: runs begin `every` seconds apart, also when the leader changes.

    The very first run begins `every` seconds after the monitor began to lead: before, there are
    hardly any traces. If a clock was set back, a run that began in the future counts as begun now.
    """
    newest = (state.running or state.last) if state else None
    last = newest.started if newest else leads_since
    return max(0.0, min(last, now) + every - now)
