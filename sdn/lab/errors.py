"""The errors of a lab."""

from dzflow.errors import BadInput, DzflowError


class LabError(DzflowError):
    """A lab cannot carry out a call; the message says why."""


class LabUnavailable(LabError):
    """This machine cannot run a lab; the message lists all that is missing."""


class LabCommandFailed(LabError):
    """A program that the lab needs has failed; the message has its output."""


class NoLab(LabError):
    """No lab is running, or none of the name asked for."""


class SeveralLabs(LabError):
    """Several labs are running and none was named."""


class UnknownLabHost(LabError):
    """The lab has no such host."""


class BadController(BadInput):
    """A controller is not given as Open vSwitch wants it."""


class CommandNotFound(BadInput):
    """The command to be run in a host does not exist."""
