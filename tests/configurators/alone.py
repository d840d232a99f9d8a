"""A configurator in a process of its own, to be stopped and killed: started with its access."""

import asyncio
import sys

import msgspec

from configurators.process import ConfiguratorOptions, ConfiguratorProcess
from configurators.store.etcd.client import Access
from tests.configurators.cluster import TOKEN

OPTIONS = ConfiguratorOptions(
    tune_gc=False,
    load_every_s=0.2,
    lease_s=2,
    take_over_after_s=0.3,
    take_over_first_s=3.0,
)


def main() -> None:
    """Run until killed."""
    access = msgspec.json.decode(sys.argv[1], type=Access)
    process = ConfiguratorProcess(access, TOKEN, sys.argv[2], "127.0.0.1:0", OPTIONS)
    asyncio.run(process.run(asyncio.Event()))


if __name__ == "__main__":
    main()
