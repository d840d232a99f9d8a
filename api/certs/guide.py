"""What to do with certificates: the settings of the service, and the steps on each machine."""

import json
from collections.abc import Collection
from pathlib import Path

from api.certs.folder import AUTHORITIES, CertificateFolder
from api.certs.wanted import BORDERS, CLIENT, MEMBER, SERVICE, SOUTHBOUND, Border

_SECTIONS: tuple[tuple[str, Border, str], ...] = (
    ("tls", "api", SERVICE),
    ("openflow", "openflow", SOUTHBOUND),
    ("streams", "streams", SERVICE),
    ("etcd", "etcd", CLIENT),
)
"""The sections of the settings, and which certificate each names."""

_TRUST = {
    "api": "on each host, for `ControlPlane(…, ca=…)`, `--ca` and DZFLOW_CA",
    "openflow": "on each switch and each machine of the service",
    "streams": "on each machine of the service",
    "etcd": "on each member of etcd and each machine of the service",
}
"""Where the certificate of an authority is needed."""


def settings_text(folder: CertificateFolder) -> str:
    """The settings, in TOML, that name the files of the folder that the service needs."""
    sections = []
    for section, border, file in _SECTIONS:
        certificate = folder.certificate(border, file).absolute()
        if certificate.exists():
            given = {"cert": certificate, "key": certificate.with_suffix(".key")}
            if section != "tls":
                given["ca"] = folder.authority_certificate(border).absolute()
            # A text of JSON is one of TOML, too.
            lines = [f"{name} = {json.dumps(str(path))}" for name, path in given.items()]
            sections.append("\n".join([f"[{section}]", *lines]))
    return "\n\n".join(sections)


def next_steps(folder: CertificateFolder, changed: Collection[Path]) -> list[str]:
    """What to do after these files were made or renewed, in this order."""
    steps = []
    for border in BORDERS:
        ca = folder.authority_certificate(border)
        if ca in changed:
            steps.append(f"Put {ca} {_TRUST[border]}.")
    for border, file in ((border, file) for _, border, file in _SECTIONS):
        if folder.certificate(border, file) in changed:
            steps.append(
                "On each machine of the service, put the files that the settings name where its"
                " user can read them, and restart the service. `dzflow certs settings` prints the"
                " settings."
            )
            break
    member = folder.certificate("etcd", MEMBER)
    if member in changed:
        steps.append(
            f"On each member of etcd, put {member} and its key, and start etcd with\n"
            + "\n".join(f"    {flag}" for flag in _member_flags(folder, member))
        )
    of_service = {folder.certificate(border, file) for _, border, file in _SECTIONS}
    ca = folder.authority_certificate("openflow")
    for path in sorted(set(changed) - of_service - {ca}):
        if path.parent == ca.parent and path.suffix == ".pem":
            files = f"{path.with_suffix('.key')} {path} {ca}"
            steps.append(
                f"On the machine of the switches {path.stem}, put {path} and its key, and with Open"
                f" vSwitch:\n    ovs-vsctl set-ssl {files}"
            )
    keys = [key for border in BORDERS if (key := folder.authority_key(border)) in changed]
    if keys:
        steps.append(
            f"Keep {folder.path / AUTHORITIES}/ away from all these machines: who has a key there"
            " can be anybody. `dzflow certs make` and `dzflow certs renew` need it."
        )
    return steps


def _member_flags(folder: CertificateFolder, member: Path) -> list[str]:
    ca, key = folder.authority_certificate("etcd"), member.with_suffix(".key")
    return [
        f"--{peer}{flag}"
        for peer in ("", "peer-")
        for flag in (
            f"cert-file={member}",
            f"key-file={key}",
            f"trusted-ca-file={ca}",
            "client-cert-auth",
        )
    ] + ["--enable-grpc-gateway=false"]
