"""A southbound process as a child process of `dzflow up --only southbound`, without Ray."""

import asyncio

from api.start import child
from api.start.parts import common
from api.start.parts.southbound import make_southbound, openflow_address
from api.start.probes import answer_probes
from configurators.gc_tuning import tune_garbage_collector
from configurators.streams.addresses import join_address


async def _work(self: child.Child, stop: asyncio.Event) -> None:
    settings, node = self.settings, self.orders["node"]
    id = settings.southbound_id or node
    listen = join_address(settings.streams.host, 0)
    openflow = openflow_address(settings, 1) or join_address(settings.openflow.host, 0)
    tune_garbage_collector()
    ending = asyncio.Event()
    async with common.tracing(settings, "southbound", id) as tracer:
        made = make_southbound(settings, id, node, listen, openflow, tracer, alone=True)

        async def report() -> None:
            await made.ready.wait()
            self.report(ready=True)

        async def end() -> None:
            await stop.wait()
            # A load balancer in front of switches learns first that this process ends.
            await asyncio.sleep(settings.times.drain_delay)
            ending.set()

        async with (
            answer_probes(settings.probes, lambda: made.ready.is_set() and not stop.is_set()),
            asyncio.TaskGroup() as group,
        ):
            others = [group.create_task(report()), group.create_task(end())]
            await made.run(ending)
            for task in others:
                task.cancel()


if __name__ == "__main__":
    child.run(_work)
