"""When the job runs next. Pure."""

from monitor.jobs.state import JobState


def seconds_until_due(
    every: float, now: float, leads_since: float, state: JobState | None
) -> float:
    """How long to wait: runs begin `every` seconds apart, whoever leads.

    The first run of all begins so long after the monitor began to lead: before, there are hardly
    any traces. A run of the future, because a clock was set back, counts as one of now.
    """
    newest = (state.running or state.last) if state else None
    last = newest.started if newest else leads_since
    return max(0.0, min(last, now) + every - now)
