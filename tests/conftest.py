"""What tests of all packages can use."""

import gc
import signal
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer  # type: ignore[import-untyped]
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

from api.start.up import Service
from configurators.store.server.server import EtcdServer, NoEtcd, find_etcd
from tests.etcd import TestEtcd
from tests.event_loop import TestLoop, fail_if_left_open
from tests.service import running

# How long an example takes says nothing on a machine that has other things to do.
settings.register_profile("dzflow", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("dzflow")

# A shell has what it starts in the background ignore Ctrl-C, and the processes of tests would, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Files that take longest, roughly in this order. They are begun first: otherwise one process would
# work on the last of them while the other has nothing left to do.
_LONG = (
    "tests/spark/",
    "tests/robustness/test_short.py",
    "tests/simulation/",
    "tests/end_to_end/",
    "tests/api/start/",
    "tests/api/http/test_conformance.py",
    "tests/bench/",
    "tests/monitor/dashboard/",
    "tests/fuzz/",
    "tests/test_",  # the commands, the demo, the distributions, the documents, the tutorial
    "tests/soak/",
    "tests/dzflow/sdk/",
    "tests/configurators/",
    "tests/dispatcher/",
    "tests/monitor/",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest; `make test` keeps this order."""
    items.sort(key=lambda item: _rank(item.nodeid))


def _rank(nodeid: str) -> int:
    return next((n for n, start in enumerate(_LONG) if nodeid.startswith(start)), len(_LONG))


class _Scheduling(LoadFileScheduling):  # type: ignore[misc]
    """Gives files to processes, and all files of the Spark jobs to one: a session starts slowly."""

    def _split_scope(self, nodeid: str) -> str:
        spark = "tests/spark/"
        return spark if nodeid.startswith(spark) else super()._split_scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> _Scheduling:
    """Distribute tests as above."""
    return _Scheduling(config, log)


def pytest_collection_finish() -> None:
    """Exempt what is there before the first test from `gc.collect`, which is quick then."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _garbage_collected() -> Iterator[None]:
    """What a file leaves open fails its last test, not one of another file."""
    yield
    gc.collect()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Fail a test that leaves connections open."""
    return (yield from fail_if_left_open())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, object, object]:
    """The same where the event loop is that of a fixture."""
    return (yield from fail_if_left_open())


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, object]]:
    """Async tests and fixtures run on asyncio."""
    return "asyncio", {"loop_factory": TestLoop}


@pytest.fixture(scope="session")
def etcd_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestEtcd]:
    """An etcd for all tests; `.access()` gives each of them a prefix of its own."""
    try:
        find_etcd()
    except NoEtcd as missing:
        pytest.skip(str(missing))
    with EtcdServer(tmp_path_factory.mktemp("etcd"), fsync=False) as server:
        yield TestEtcd(server)


@pytest.fixture(scope="session")
def service(
    etcd_server: TestEtcd,  # noqa: ARG001 - skips where there is no etcd
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Service]:
    """The whole service, for tests that only need one that runs; they leave it as it was."""
    with running(tmp_path_factory.mktemp("service"), dispatchers=2) as found:
        yield found
