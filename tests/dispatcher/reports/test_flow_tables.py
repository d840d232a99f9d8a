"""Entries as users see them."""

from configurators.state.network import first_network
from configurators.state.spaces import Spaces
from dispatcher.reports.flow_tables import computed_views
from sdn.network.topologies import topology
from sdn.tables.pipeline import Pipeline


def test_the_entry_for_other_traffic_says_that_the_switch_forwards_by_itself() -> None:
    for other_traffic, expected in (("leave", []), ("normal", [["output:normal"]])):
        pipeline = Pipeline(other_traffic=other_traffic)  # type: ignore[arg-type]
        doc = first_network(topology("line:2"), "legs", 1, pipeline)
        views = computed_views(doc, Spaces(prefix=pipeline.prefix), [], "s1")
        assert [view.actions for view in views if view.actions] == expected
        assert all(view.space is None for view in views)
