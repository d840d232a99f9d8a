"""The root of every error that dzflow raises on purpose."""


class DzflowError(Exception):
    """Something the caller can understand and act on; the message says what to do."""


class BadInput(DzflowError):
    """What the caller gave cannot be accepted; nothing was changed."""


class LossWarning(UserWarning):
    """Something was accepted, but less exactly than asked for; the message says what is lost."""
