"""When a network counts as found, wired and ready in the benchmark of the start."""

from typing import Any

import pytest

from bench.start_up import reached
from sdn.network.topologies import topology

LINE = topology("line:3")
LINKS = [{"up": True}, {"up": True}]
UP = [{"state": "up"}] * 3
WHOLE = {"used": True, "whole": True, "links": LINKS}
GROWING = {"used": True, "whole": True, "links": LINKS[:1]}
COMING = {"used": False, "whole": False, "links": []}


@pytest.mark.parametrize(
    ("switches", "links", "trees", "expected"),
    [
        ([], [], [], []),
        (UP[:2], LINKS[:1], [GROWING], []),
        ([*UP[:2], {"state": "down"}], LINKS, [WHOLE], ["links_found_s"]),
        (UP, [LINKS[0], {"up": False}], [WHOLE], ["switches_up_s"]),
        (UP, LINKS, [], ["switches_up_s", "links_found_s"]),
        (UP, LINKS, [WHOLE, GROWING], ["switches_up_s", "links_found_s"]),
        (UP, LINKS, [WHOLE, COMING], ["switches_up_s", "links_found_s", "wired_s"]),
    ],
)
def test_all_switches_and_links_are_up_and_trees_span_them(
    switches: list[Any], links: list[Any], trees: list[Any], expected: list[str]
) -> None:
    found = {"switches": switches, "links": links, "trees": trees}
    assert reached(found, LINE) == expected
