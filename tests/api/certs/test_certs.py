"""Certificates for all parts: what they say, where they are kept, how they are renewed."""

import json
import ssl
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from api.certs.folder import CertificateFolder, CertificateFolderError
from api.certs.guide import next_steps, settings_text
from api.certs.wanted import BORDERS, BadCertificateRequest, Border, wanted_certificates
from api.start.settings.sources import load
from sdn.openflow.connections.certificates import named_dpids
from tests.command import run_dzflow

NOW = datetime.now(UTC).replace(microsecond=0)
DAY = timedelta(days=1)
YEAR, DECADE, MONTH = 365 * DAY, 3650 * DAY, 30 * DAY


def made(path: Path, now: datetime = NOW) -> CertificateFolder:
    folder = CertificateFolder(path / "certs", now)
    wanted = wanted_certificates(["m1.example.org", "192.0.2.1"], ["e1", "::1"], ["rack1=1,0x10"])
    folder.make(wanted, YEAR, DECADE)
    return folder


def at(folder: CertificateFolder, now: datetime) -> CertificateFolder:
    """The same folder at another time."""
    return CertificateFolder(folder.path, now)


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def is_signed_by(folder: CertificateFolder, border: Border, path: Path) -> bool:
    try:
        certificate(path).verify_directly_issued_by(
            certificate(folder.authority_certificate(border))
        )
    except (ValueError, InvalidSignature):
        return False
    return True


def contents(folder: CertificateFolder) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}


def shake_hands(
    folder: CertificateFolder, border: Border, server: str, client: str, name: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Complete a TLS handshake in memory; what each side learns of the other's certificate."""
    ends = []
    for side, file in ((ssl.PROTOCOL_TLS_SERVER, server), (ssl.PROTOCOL_TLS_CLIENT, client)):
        context = ssl.SSLContext(side)
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        path = folder.certificate(border, file)
        context.load_cert_chain(path, path.with_suffix(".key"))
        context.load_verify_locations(folder.authority_certificate(border))
        ends.append(context)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    serving = ends[0].wrap_bio(to_server, to_client, server_side=True)
    calling = ends[1].wrap_bio(to_client, to_server, server_hostname=name)
    left = [calling, serving]
    while left:
        end = left.pop(0)
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            left.append(end)
    found = (calling.getpeercert(), serving.getpeercert())
    assert found[0]
    assert found[1]
    return found[0], found[1]


def test_every_certificate_is_trusted_at_its_own_border_only(tmp_path: Path) -> None:
    folder = made(tmp_path)
    for each in folder.certificates():
        trusted_at = [border for border in BORDERS if is_signed_by(folder, border, each.path)]
        assert trusted_at == [each.border]


def test_switches_and_the_service_recognise_each_other(tmp_path: Path) -> None:
    folder = made(tmp_path)
    _, switch = shake_hands(folder, "openflow", "southbound", "rack1", "m1.example.org")
    assert named_dpids(switch) == {1, 16}
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(folder, "openflow", "southbound", "rack1", "m2.example.org")


def test_a_switch_cannot_pose_as_the_service(tmp_path: Path) -> None:
    folder = made(tmp_path)
    with pytest.raises(ssl.SSLError, match="unsuitable certificate purpose"):
        shake_hands(folder, "openflow", "rack1", "rack1", "rack1")


def test_streams_and_members_of_etcd_use_one_certificate_for_both_ends(tmp_path: Path) -> None:
    folder = made(tmp_path)
    shake_hands(folder, "streams", "service", "service", "192.0.2.1")
    shake_hands(folder, "etcd", "member", "member", "::1")
    _, client = shake_hands(folder, "etcd", "member", "client", "e1")
    assert client["subject"] == ((("commonName", "dzflow"),),)


def test_nobody_else_can_read_the_files(tmp_path: Path) -> None:
    folder = made(tmp_path)
    for path in (folder.path, *folder.path.rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    shared = tmp_path / "certs"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(CertificateFolderError, match=r"other users .* `chmod 700` it"):
        made(tmp_path)
    assert list(shared.iterdir()) == []


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    folder = made(tmp_path)
    before = contents(folder)
    wanted = wanted_certificates([], [], ["rack2=3", "rack1=1"])
    with pytest.raises(CertificateFolderError, match=r"rack1\.pem exists already; nothing was"):
        folder.make(wanted, YEAR, DECADE)
    folder.certificate("openflow", "rack1").unlink()
    with pytest.raises(CertificateFolderError, match=r"rack1\.key exists already"):
        folder.make(wanted, YEAR, DECADE)
    assert contents(folder).items() <= before.items()


def test_later_certificates_are_signed_by_the_same_authority(tmp_path: Path) -> None:
    folder = made(tmp_path)
    files = folder.make(wanted_certificates([], [], ["rack2=3"]), YEAR, DECADE)
    rack = folder.certificate("openflow", "rack2")
    assert files == [rack.with_suffix(".key"), rack]
    assert is_signed_by(folder, "openflow", rack)


@pytest.mark.parametrize("missing", ["authority/openflow.key", "openflow/ca.pem"])
def test_without_its_authority_nothing_is_signed(missing: str, tmp_path: Path) -> None:
    folder = made(tmp_path)
    (folder.path / missing).unlink()
    before = contents(folder)
    with pytest.raises(CertificateFolderError, match=f"{missing} is missing; put it back"):
        folder.make(wanted_certificates([], [], ["rack2=3"]), YEAR, DECADE)
    with pytest.raises(CertificateFolderError, match=f"{missing} is missing; put it back"):
        at(folder, NOW + YEAR).renew(MONTH, YEAR, DECADE)
    assert contents(folder) == before


def test_the_key_of_another_authority_is_refused(tmp_path: Path) -> None:
    folder = made(tmp_path)
    folder.authority_key("openflow").write_bytes(folder.authority_key("api").read_bytes())
    with pytest.raises(CertificateFolderError, match=r"openflow\.key is not the key of"):
        folder.make(wanted_certificates([], [], ["rack2=3"]), YEAR, DECADE)


def test_what_ends_soon_is_renewed_with_its_key_and_names(tmp_path: Path) -> None:
    folder = made(tmp_path)
    assert folder.renew(MONTH, YEAR, DECADE) == []
    late = NOW + YEAR - 10 * DAY
    folder.make(wanted_certificates([], [], ["rack2=3"]), 2 * YEAR, DECADE)
    before = contents(folder)
    renewed = at(folder, late).renew(MONTH, YEAR, DECADE)
    leaves = [each.path for each in folder.certificates() if not each.authority]
    assert set(renewed) == set(leaves) - {folder.certificate("openflow", "rack2")}
    changed = {path for path, data in contents(folder).items() if before[path] != data}
    assert changed == set(renewed)
    for path in renewed:
        old, new = x509.load_pem_x509_certificate(before[path]), certificate(path)
        assert new.not_valid_after_utc == late + YEAR
        assert new.serial_number != old.serial_number
        assert new.public_key() == old.public_key()
        assert list(new.extensions) == list(old.extensions)
        assert new.subject == old.subject
    assert at(folder, late).renew(MONTH, YEAR, DECADE) == []


def test_no_certificate_outlives_its_authority(tmp_path: Path) -> None:
    folder = CertificateFolder(tmp_path / "certs", NOW)
    folder.make(wanted_certificates([], [], ["rack1=1"]), YEAR, MONTH)
    assert {each.ends for each in folder.certificates()} == {NOW + MONTH}


@pytest.mark.parametrize("late", [timedelta(minutes=1), DAY])
def test_an_authority_that_has_ended_signs_nothing_until_it_is_renewed(
    late: timedelta, tmp_path: Path
) -> None:
    folder = made(tmp_path)
    before = contents(folder)
    ended = at(folder, NOW + DECADE + late)
    wanted = wanted_certificates([], [], ["rack2=3"])
    with pytest.raises(CertificateFolderError, match=r"ca\.pem has ended; nothing was made"):
        ended.make(wanted, YEAR, DECADE)
    assert contents(folder) == before
    ended.renew(MONTH, YEAR, DECADE)
    ended.make(wanted, YEAR, DECADE)
    rack = ended.certificate("openflow", "rack2")
    assert certificate(rack).not_valid_after_utc == NOW + DECADE + late + YEAR


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "certs").write_text("a file")
    with pytest.raises(CertificateFolderError, match="certs cannot be used: File exists"):
        made(tmp_path)


def test_a_renewed_authority_still_stands_for_what_it_signed(tmp_path: Path) -> None:
    folder = CertificateFolder(tmp_path / "certs", NOW)
    folder.make(wanted_certificates(["m1"], [], ["rack1=1"]), YEAR, 20 * DAY)
    rack = folder.certificate("openflow", "rack1")
    old = rack.read_bytes()
    assert folder.authority_certificate("openflow") in folder.renew(MONTH, YEAR, DECADE)
    ends = {each.path: each.ends for each in folder.certificates()}
    assert ends[folder.authority_certificate("openflow")] == NOW + DECADE
    assert ends[rack] == NOW + YEAR
    rack.write_bytes(old)
    shake_hands(folder, "openflow", "southbound", "rack1", "m1")


@pytest.mark.parametrize(
    ("service", "etcd", "switches", "message"),
    [
        ([], [], [], "nothing to make"),
        (["a b"], [], [], "not an IP address"),
        ([""], [], [], "not an IP address"),
        ([], ["x" * 300], [], "not an IP address"),
        ([], ["fe80::1%eth0"], [], "not an IP address"),
        ([], [], ["rack1"], "give a name and datapath ids"),
        ([], [], ["../x=1"], "give a name and datapath ids"),
        ([], [], ["ca=1"], "give a name and datapath ids"),
        ([], [], ["southbound=1"], "give a name and datapath ids"),
        ([], [], ["rack1=1,"], "'' is not a datapath id"),
        ([], [], ["rack1=-1"], "'-1' is not a datapath id"),
        ([], [], ["rack1=18446744073709551616"], "is not a datapath id"),
        ([], [], ["rack1=1", "rack1=2"], "rack1 is given twice"),
    ],
)
def test_what_cannot_be_made_is_named(
    service: list[str], etcd: list[str], switches: list[str], message: str
) -> None:
    with pytest.raises(BadCertificateRequest, match=message):
        wanted_certificates(service, etcd, switches)


def test_datapath_ids_are_read_as_switches_print_them(tmp_path: Path) -> None:
    folder = CertificateFolder(tmp_path / "certs", NOW)
    given = "rack1=16,0x11,0000000000000012,of:0000000000000013,16"
    folder.make(wanted_certificates([], [], [given]), YEAR, DECADE)
    names = folder.certificates()[1].names
    assert names == [f"URI of:{dpid:016x}" for dpid in (16, 17, 18, 19)]


def test_the_settings_are_those_of_the_service(tmp_path: Path) -> None:
    folder = made(tmp_path / 'a "b"')
    settings = load(options=tomllib.loads(settings_text(folder)), environment={})
    sections = (settings.tls, settings.openflow, settings.streams, settings.etcd)
    named = [path for each in sections for path in (each.cert, each.key)]
    named += [each.ca for each in (settings.openflow, settings.streams, settings.etcd)]
    assert all(path is not None and path.is_file() for path in named)
    assert len(set(named)) == len(named)


def test_the_next_steps_name_what_has_changed_and_nothing_else(tmp_path: Path) -> None:
    folder = made(tmp_path)
    files = folder.make(wanted_certificates([], [], ["rack2=3"]), YEAR, DECADE)
    (only,) = next_steps(folder, files)
    assert f"set-ssl {files[0]} {files[1]} {folder.authority_certificate('openflow')}" in only
    assert next_steps(folder, []) == []
    all_steps = "\n".join(next_steps(folder, list(contents(folder))))
    for words in ("Put", "dzflow certs settings", "--peer-client-cert-auth", "Keep"):
        assert words in all_steps


def test_the_command_makes_lists_and_renews(tmp_path: Path) -> None:
    folder = tmp_path / "certs"
    first = run_dzflow("certs", "make", folder, "--service", "m1", "--days", 10)
    assert first.returncode == 0, first.stderr
    assert "1. Put " in first.stdout
    again = run_dzflow("certs", "make", folder, "--service", "m1")
    assert again.returncode == 1
    assert "exists already" in again.stderr
    listed = json.loads(run_dzflow("certs", "list", folder, "--json").stdout)["items"]
    states = {each["file"]: each["state"] for each in listed}
    assert states["api/service.pem"] == "ends soon"
    assert states["api/ca.pem"] == "valid"
    assert "renewed" in run_dzflow("certs", "renew", folder).stdout
    assert "no certificate ends within 30 days" in run_dzflow("certs", "renew", folder).stdout
    shown = run_dzflow("certs", "list", folder).stdout
    assert "ends soon" not in shown
    assert "api/service.pem" in shown
    assert "[streams]" in run_dzflow("certs", "settings", folder).stdout
    missing = run_dzflow("certs", "list", tmp_path / "none")
    assert missing.returncode == 1
    assert "there is no folder" in missing.stderr
    assert "`dzflow certs make " in " ".join(missing.stderr.split())
