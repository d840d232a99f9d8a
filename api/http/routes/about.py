"""What the service is: its settings, and the versions of its parts."""

import platform
from importlib.metadata import PackageNotFoundError, version

from api.http.border.route import ApiRequest, new_router
from api.http.dependencies import DispatcherDep
from api.http.schema.models import AboutOut, SettingsOut
from api.http.schema.msgspec_types import Json
from api.http.schema.openapi import answer

router = new_router("service")

_PACKAGES = ("ray", "fastapi", "uvicorn", "msgspec", "pydantic", "aetcd", "grpcio", "pyarrow")


@router.get("/settings", responses={200: answer("All settings; secrets are never given.")})
async def get_settings(request: ApiRequest) -> Json[SettingsOut]:
    """What the service was started with, and whether each setting differs from its default."""
    return request.context.configured


@router.get("/about", responses={200: answer("The versions.")})
async def get_about(dispatcher: DispatcherDep) -> Json[AboutOut]:
    """The versions of dzflow, and of what it runs on."""
    members = await dispatcher.etcd.maintenance.states()
    return AboutOut(
        version("dzflow"),
        platform.python_version(),
        f"{platform.system()} {platform.machine()}",
        sorted({member.version for member in members.values() if member}),
        _package_versions(),
    )


def _package_versions() -> dict[str, str]:
    """The versions of those packages that are installed; Ray need not be, beside the workers."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
