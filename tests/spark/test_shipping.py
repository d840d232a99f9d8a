"""The code that is shipped to workers runs where dzflow and its dependencies are missing."""

import subprocess
import sys
from pathlib import Path

import pytest

from dzflow.region import Region
from spark.workers.indexing import pack, unpack
from spark.workers.shipping import write_archive
from spark.workers.standin import Struct, provide_msgspec
from tests.spark.cluster import link_packages

# Isolated, and without the packages of this environment: only what the test puts on the path.
SCRIPT = """
import sys
sys.path[1:1] = sys.argv[1:]
from importlib.util import find_spec
assert find_spec("msgspec") is None
assert find_spec("pyspark") is None
import pyarrow as pa
from spark.workers.indexing import IndexSource, region_finder
schema = {"attributes": [{"name": "price", "type": "int", "min": 0, "max": 1023, "bits": 10}]}
find = region_finder([IndexSource("stocks", 0, schema, ((1,), (3,)))])
filters = ['{"price": {"gte": 896}}', '"price < 512"', "{}", "no JSON", '{"colour": 1}', None]
spaces = ["stocks"] * len(filters)
(found,) = find(iter([(pa.array(spaces), pa.array(filters))]))
print([None if each is None else [one.hex() for one in each] for each in found.to_pylist()])
"""


def test_shipped_code_indexes_filters_without_dzflow(tmp_path: Path) -> None:
    archive = tmp_path / "code.zip"
    write_archive(archive)
    packages = tmp_path / "packages"
    link_packages(packages)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", SCRIPT, str(archive), str(packages)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    expected = [["111"], ["0"], [""], None, None, None]
    shown = [
        None if each is None else [pack(Region.parse(text)).hex() for text in each]
        for each in expected
    ]
    assert done.stdout.strip() == str(shown)


def test_regions_are_the_same_when_they_have_travelled() -> None:
    for text in ("*", "0", "1*0", "1" * 96, "*" * 95 + "1"):
        assert unpack(pack(Region.parse(text))) == Region.parse(text)


def test_the_stand_in_behaves_like_what_it_stands_for() -> None:
    provide_msgspec()  # msgspec is there, so nothing happens
    import msgspec

    assert "msgspec" in msgspec.Struct.__module__

    class Pair(Struct, frozen=True, order=True, gc=False):
        bits: int
        mask: int

    assert Pair(1, 2) == Pair(1, 2)  # type: ignore[call-arg]
    assert sorted([Pair(2, 0), Pair(1, 9)])[0] == Pair(1, 9)  # type: ignore[call-arg,type-var]
    assert hash(Pair(1, 2)) == hash(Pair(1, 2))  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        Pair(1, 2).bits = 3  # type: ignore[call-arg]
