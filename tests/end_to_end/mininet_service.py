"""A control plane for `mininet_driver.py`: it works until its standard input ends."""

import sys
from pathlib import Path

from dispatcher.changes.damping import Patience
from sdn.tables.pipeline import OtherTraffic
from tests import etcd
from tests.stack import Stack, StackOptions

SOON = Patience(down_after=0.5, back_after=0.5, silent_after=0.5)


def main(folder: Path, port: int, openflow: int, other_traffic: OtherTraffic, trees: int) -> None:
    """Run it at these ports."""
    options = StackOptions(
        openflow=f"127.0.0.1:{openflow}",
        other_traffic=other_traffic,
        trees=trees,
        hosts="propose",
        patience=SOON,
        more={"settled_after": 0.5},
    )
    with (
        etcd.running(folder / "etcd") as server,
        Stack(server.access("mininet/", 30.0), options) as made,
        made.serving((), port),
    ):
        sys.stdin.read()


if __name__ == "__main__":
    folder, port, openflow, other_traffic, trees = sys.argv[1:]
    main(
        Path(folder),
        int(port),
        int(openflow),
        "normal" if other_traffic == "normal" else "leave",
        int(trees),
    )
