"""`dzflow certs`: certificates for all parts of an installation."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dzflow.cli.service.client import AsJson
from dzflow.cli.tables import print_json, show_list

if TYPE_CHECKING:
    from api.certs.folder import CertificateFolder

app = typer.Typer(
    help="Certificates for the API, streams, switches and etcd, from authorities of your own.",
    no_args_is_help=True,
)

_SOON = 30

Folder = Annotated[Path, typer.Argument(help="The folder with the certificates and keys.")]
Days = Annotated[int, typer.Option(min=1, max=36_500, help="Days until certificates end.")]
AuthorityDays = Annotated[
    int, typer.Option(min=1, max=36_500, help="Days until certificates of authorities end.")
]
Within = Annotated[int, typer.Option(min=0, help="Days that count as soon.")]


@app.command()
def make(
    folder: Folder,
    service: Annotated[
        list[str] | None,
        typer.Option(help="A name or address of a machine of the service; give all of them."),
    ] = None,
    etcd: Annotated[
        list[str] | None, typer.Option(help="A name or address of a member of etcd; the same.")
    ] = None,
    switches: Annotated[
        list[str] | None,
        typer.Option(help="A machine with switches and their datapath ids, such as rack1=1,2."),
    ] = None,
    days: Days = 365,
    authority_days: AuthorityDays = 3_650,
) -> None:
    """Make certificates, and authorities where there are none; overwrite nothing."""
    from api.certs.wanted import wanted_certificates

    wanted = wanted_certificates(service or (), etcd or (), switches or ())
    opened = _open(folder)
    made = opened.make(wanted, timedelta(days=days), timedelta(days=authority_days))
    for path in made:
        print(f"made {path}")
    _advise(opened, made)


@app.command()
def renew(
    folder: Folder,
    within: Within = _SOON,
    days: Days = 365,
    authority_days: AuthorityDays = 3_650,
) -> None:
    """Give certificates that end soon a new term. Their keys and names stay."""
    opened = _open(folder)
    changed = opened.renew(
        timedelta(days=within), timedelta(days=days), timedelta(days=authority_days)
    )
    for path in changed:
        print(f"renewed {path}")
    if not changed:
        print(f"no certificate ends within {within} days")
    _advise(opened, changed)


@app.command("list")
def list_certificates(folder: Folder, within: Within = _SOON, as_json: AsJson = False) -> None:
    """Show the certificates: for which names they are, and until when."""
    opened, now = _open(folder), datetime.now(UTC)
    items = [
        {
            "file": str(each.path.relative_to(folder)),
            "names": list(each.names),
            "ends": each.ends.isoformat(timespec="seconds"),
            "days": (each.ends - now).days,
            "state": "ended"
            if each.ends <= now
            else "ends soon"
            if each.ends_within(timedelta(days=within), now)
            else "valid",
        }
        for each in opened.certificates()
    ]
    if as_json:
        print_json({"items": items})
    else:
        show_list(items, ("file", "names", "ends", "days", "state"), lesser=("ends",))


@app.command()
def settings(folder: Folder) -> None:
    """Print the settings of the service, for its configuration file."""
    from api.certs.guide import settings_text

    print(settings_text(_open(folder)))


def _open(folder: Path) -> "CertificateFolder":
    from api.certs.folder import CertificateFolder

    return CertificateFolder(folder, datetime.now(UTC))


def _advise(folder: "CertificateFolder", changed: list[Path]) -> None:
    from api.certs.guide import next_steps

    steps = next_steps(folder, changed)
    if steps:
        print("\nNext:")
    for number, step in enumerate(steps, 1):
        print(f"{number}. {step}")
