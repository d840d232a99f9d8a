"""`dzflow etcd secure`: makes an etcd of dzflow's own ask for a password."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dzflow.cli.service.client import interruptible


def secure(
    config: Annotated[Path | None, typer.Option(help="A TOML or YAML file with settings.")] = None,
    wait: Annotated[float, typer.Option(min=0.0, help="Seconds to wait for etcd.")] = 300.0,
) -> None:
    """Have etcd ask for the password of its user root, from then on.

    The settings say where etcd is (`etcd.endpoints`), its user (`etcd.user`, which has to be root)
    and the password (DZFLOW_ETCD__PASSWORD). The command can be repeated. It is for an etcd that
    only dzflow uses, because all other clients lose their access.
    """
    from api.start.parts.common import access
    from api.start.settings.sources import load
    from configurators.store.etcd.authentication import require_password

    settings = load(config, {})
    with interruptible():
        changed = asyncio.run(require_password(access(settings), wait))
    said = "etcd asks for a password now" if changed else "etcd asked for this password already"
    Console().print(said, highlight=False)
