"""Makes an etcd ask for a password: for an etcd that has nobody else's data."""

from typing import Any

from aetcd import rpc

from configurators.store.etcd.connection import Access, EtcdConnection, Member, Metadata
from configurators.store.etcd.errors import StoreRefused

ROOT = "root"
"""The user that etcd insists on. It may do everything, so that dzflow can defragment, too."""

_OFF = "authentication is not enabled"
_THERE = "already exists"


async def require_password(access: Access, limit: float) -> bool:
    """Have etcd ask for the user `root` with the password of `access`; whether it did not before.

    Waits for etcd for up to `limit` seconds. It can be repeated, also after it was interrupted.
    StoreRefused if etcd asks for another password already.
    """
    if access.user != ROOT or not access.password:
        raise StoreRefused(f"etcd.user: it has to be {ROOT}, with a password in etcd.password")
    without_user = Access(
        access.endpoints, access.prefix, ca=access.ca, cert=access.cert, key=access.key
    )
    connection = EtcdConnection(without_user)

    async def call(name: str, request: Any) -> None:
        async def invoke(member: Member, metadata: Metadata, timeout: float) -> None:
            await getattr(member.auth, name)(request, timeout=timeout, metadata=metadata)

        await connection.call(invoke, repeatable=True, limit=limit)

    try:
        try:
            await call("Authenticate", rpc.AuthenticateRequest(name=ROOT, password=access.password))
        except StoreRefused as refused:
            if _OFF not in str(refused):
                raise
        else:
            return False
        try:
            await call("UserAdd", rpc.AuthUserAddRequest(name=ROOT, password=access.password))
        except StoreRefused as refused:
            if _THERE not in str(refused):
                raise
            change = rpc.AuthUserChangePasswordRequest(name=ROOT, password=access.password)
            await call("UserChangePassword", change)
        try:
            await call("RoleAdd", rpc.AuthRoleAddRequest(name=ROOT))
        except StoreRefused as refused:
            if _THERE not in str(refused):
                raise
        await call("UserGrantRole", rpc.AuthUserGrantRoleRequest(user=ROOT, role=ROOT))
        await call("AuthEnable", rpc.AuthEnableRequest())
        return True
    finally:
        await connection.close()
