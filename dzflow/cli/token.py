"""`dzflow token`: prints a random token."""

import secrets


def token() -> None:
    """Print a random token, for the settings of the control plane."""
    print(secrets.token_urlsafe(32))
