"""An owner of connections for tests that look at the connections only."""

from sdn.openflow.connections.connection import SwitchConnection
from sdn.openflow.protocol.events import Event


class QuietOwner:
    """Ignores what a connection reports."""

    def connection_made(self, connection: SwitchConnection) -> None:
        pass

    def event_received(self, connection: SwitchConnection, event: Event) -> None:
        pass

    def writing_resumed(self, connection: SwitchConnection) -> None:
        pass
