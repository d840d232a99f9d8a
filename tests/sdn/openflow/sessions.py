"""Sessions to test with: one that is ready, and what must hold when one ends."""

import pytest

from dzflow.address import ALL, Match
from sdn.openflow.protocol.constants import (
    OUR_COOKIES,
    V1_3,
    V1_4,
)
from sdn.openflow.protocol.events import (
    Closed,
    Ready,
)
from sdn.openflow.protocol.messages import FlowStat, Port
from sdn.openflow.protocol.session import NotReady, Session
from sdn.tables.flows import Change, FlowEntry, FlowOp, Output
from tests.sdn.openflow import peer
from tests.sdn.openflow.peer import header, split

both = pytest.mark.parametrize("version", [V1_3, V1_4])
MATCH = Match(0xFF1E << 112, ALL ^ (ALL >> 16))
OPS = [FlowOp(Change.ADD, FlowEntry(1, n, MATCH, (Output(1),), 2)) for n in range(3)]
STATS = [FlowStat(OUR_COOKIES, 1, 2, op.entry) for op in OPS]


def connect(version: int = V1_4, first_xid: int = 1) -> Session:
    """A session that is ready, with nothing left to send."""
    session = Session(first_xid)
    session.feed(peer.hello(version, version))
    _, *asked = split(session.outgoing())
    features, ports = (header(each).xid for each in asked)
    events = session.feed(
        peer.features(version, features) + peer.port_desc(version, ports, peer.port(version, 1))
    )
    assert events == [Ready(0xD2, version, 254, 0x4F, (Port(1, "p", "00:00:00:00:00:01", True),))]
    assert session.ready
    assert session.version == version
    return session


def closing(session: Session, data: bytes) -> str:
    """Why these bytes end a session, which then takes and says nothing any more."""
    *_, last = session.feed(data)
    assert isinstance(last, Closed)
    assert session.closed == last.reason
    assert session.feed(peer.hello(V1_4)) == []
    assert session.eof() == []
    with pytest.raises(NotReady, match="over"):
        session.send_ops(OPS)
    return last.reason
