"""dzflow: the language that hosts and control plane share, the host SDK, and the command."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dzflow.sdk import AsyncControlPlane, ControlPlane

__all__ = ["AsyncControlPlane", "ControlPlane"]


def __getattr__(name: str) -> object:
    # Imported on first use: the language and most commands do not need the SDK.
    if name in __all__:
        import dzflow.sdk

        return getattr(dzflow.sdk, name)
    raise AttributeError(f"module 'dzflow' has no attribute {name!r}")
