"""What the service is: its settings, and the versions of its parts."""

import asyncio
import platform
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from api.http.border.route import ApiRequest, new_router
from api.http.dependencies import DispatcherDep
from api.http.schema.msgspec_types import Json
from api.http.schema.openapi import answer
from api.http.schema.service import AboutOut, SettingsOut
from configurators.store.etcd.maintenance import MemberState

router = new_router("service")

_ETCD = 1.0  # seconds that etcd's members have to tell their versions
_PACKAGES = ("ray", "fastapi", "uvicorn", "msgspec", "pydantic", "aetcd", "grpcio", "pyarrow")


@router.get("/settings", responses={200: answer("All settings; secrets are never given.")})
async def get_settings(request: ApiRequest) -> Json[SettingsOut]:
    """What the service was started with, and whether each setting differs from its default."""
    return request.context.configured


@router.get("/about", responses={200: answer("Versions and caller.")})
async def get_about(request: ApiRequest, dispatcher: DispatcherDep) -> Json[AboutOut]:
    """The versions of dzflow, and of what it runs on; the role and the host of the caller."""
    members: Mapping[str, MemberState | None] = {}
    with suppress(TimeoutError):  # etcd may not answer now; the rest is known without it
        async with asyncio.timeout(_ETCD):
            members = await dispatcher.etcd.maintenance.states()
    return AboutOut(
        version("dzflow"),
        platform.python_version(),
        f"{platform.system()} {platform.machine()}",
        sorted({member.version for member in members.values() if member}),
        _package_versions(),
        "operator" if request.caller.is_operator else "host",
        request.caller.host,
        bool(request.context.settings.lab),
    )


@cache
def _package_versions() -> dict[str, str]:
    """The versions of those packages that are installed; Ray need not be, beside the workers."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
