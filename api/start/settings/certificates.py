"""Loads the certificates that the settings name."""

from api.start.settings.settings import Settings
from configurators.streams.tls import StreamTls


def stream_tls(settings: Settings) -> StreamTls | None:
    """The certificates for streams, if the settings name some; BadCertificates if unusable."""
    given = settings.streams
    if given.cert is None or given.key is None or given.ca is None:
        return None
    return StreamTls(given.cert, given.key, given.ca)
