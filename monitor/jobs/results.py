"""Follows the state of the scheduled job in etcd: every API process shows it."""

import logging
from collections.abc import Callable
from contextlib import aclosing

from configurators.store.etcd.client import Etcd
from configurators.store.keys import JOB
from configurators.store.mirror import follow_key
from monitor.jobs.state import BadResult, JobState, decode_state

log = logging.getLogger(__name__)


class JobResults:
    """The state of the job as etcd has it, while `run` runs."""

    def __init__(self, etcd: Etcd, on_change: Callable[[JobState], None]) -> None:
        self.state: JobState | None = None
        self._etcd = etcd
        self._on_change = on_change

    async def run(self) -> None:
        """Follow the state until cancelled."""
        async with aclosing(follow_key(self._etcd, JOB)) as values:
            async for found in values:
                try:
                    self.state = decode_state(found.value)
                except BadResult as error:
                    log.error("%s: %s", JOB, error)
                else:
                    self._on_change(self.state)
