"""Measures a service from outside: memory and processor time by role, etcd, disk."""

import os
from collections import Counter
from pathlib import Path

from msgspec import Struct

from api.start.workers.ray_environment import folder_of
from bench.load.arrivals import percentile
from bench.load.generator import LoadResult
from bench.processes.cpu import CpuMeter, kind_of, process_tree
from configurators.store.etcd.client import Access, Etcd
from configurators.store.keys import FINISHED, KEYS, RECORDS

_MB = 2**20
_KEYS = {"records": RECORDS, "finished": FINISHED, "idempotency": KEYS}


class Sample(Struct, frozen=True):
    """What was measured at one time; sizes are in MB, `minute` counts from the begin."""

    minute: float
    memory: dict[str, float]  # resident, by role
    cpu_us: dict[str, float]  # processor time per request, by role
    etcd: dict[str, float]  # size and in_use in MB, revision, keys by kind
    disk: dict[str, float]  # by part of the data folder
    requests_per_s: float
    p50_ms: float
    p99_ms: float
    refused: int  # requests that the service told to come later
    failed: int  # calls without an answer
    active: int


class Sampler:
    """Measures the processes below this one, and the folder of the service."""

    def __init__(self, access: Access, folder: Path) -> None:
        self._access = access
        self._folder = folder
        self._cpu = CpuMeter()

    async def sample(self, minute: float, load: LoadResult, failed: int, active: int) -> Sample:
        """A sample after some load."""
        spent = self._cpu.read()
        done = max(1, len(load.latencies))
        ordered = sorted(load.latencies)
        return Sample(
            minute=minute,
            memory=memory_by_role(),
            cpu_us={role: 1e6 * seconds / done for role, seconds in spent.items()},
            etcd=await etcd_figures(self._access),
            disk=disk_by_part(self._folder),
            requests_per_s=len(load.latencies) / load.seconds if load.seconds else 0.0,
            p50_ms=1e3 * percentile(ordered, 0.5),
            p99_ms=1e3 * percentile(ordered, 0.99),
            refused=load.refused.total(),
            failed=failed,
            active=active,
        )


def memory_by_role() -> dict[str, float]:
    """Resident memory of this process (`load`) and its descendants, in MB by kind of process."""
    found: Counter[str] = Counter()
    for pid, command in process_tree(os.getpid()).items():
        role = "load" if pid == os.getpid() else kind_of(command)
        found[role] += resident(pid)
    return {role: size / _MB for role, size in sorted(found.items())}


def resident(pid: int) -> int:
    """The resident memory of a process in bytes; 0 if it has ended."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


async def etcd_figures(access: Access) -> dict[str, float]:
    """Sizes in MB, the newest revision, and the number of keys by kind."""
    async with Etcd(access) as etcd:
        states = (await etcd.maintenance.states()).values()
        return {
            "size": max((state.size for state in states if state), default=0) / _MB,
            "in_use": max((state.in_use for state in states if state), default=0) / _MB,
            "revision": float(await etcd.maintenance.revision()),
            **{kind: float(await etcd.count(prefix)) for kind, prefix in _KEYS.items()},
        }


def disk_by_part(folder: Path) -> dict[str, float]:
    """The disk space of each folder in the data folder, and of Ray's session, in MB."""
    parts = {entry.name: entry for entry in folder.iterdir() if entry.is_dir()}
    parts["ray"] = folder_of(folder)
    return {name: size_of(part) / _MB for name, part in sorted(parts.items())}


def size_of(folder: Path) -> int:
    """The disk space of all files below a folder, in bytes; files may vanish meanwhile."""
    size = 0
    for base, _, names in os.walk(folder):
        for name in names:
            try:
                # Blocks, because etcd allocates its files ahead.
                size += os.lstat(os.path.join(base, name)).st_blocks * 512
            except FileNotFoundError:
                continue
    return size
