"""The authority of a cluster and its certificates."""

from __future__ import annotations

import os
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from raftwerk.cli.main import cli
from raftwerk.cluster.local.certificates import CertificateAuthority, end_of, hosts_of, make_certificates
from raftwerk.runtime.tls_contexts import TlsMaterial, TlsOptions, client_context, server_context
from raftwerk.security.tls.key_stores import certificates_in, key_in


def handshake(node_pem: bytes, authority_pem: bytes, host: str) -> None:
    """A TLS handshake in memory; the client checks the host and the server asks for a certificate."""
    own = TlsMaterial(chain=certificates_in(node_pem), key=key_in(node_pem), authorities=authority_pem)
    server_side, client_side = (
        server_context(own, TlsOptions(client_auth="required")),
        client_context(own, TlsOptions()),
    )
    client_side.verify_flags |= ssl.VERIFY_X509_STRICT  # Python 3.13 checks so by default
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_side.wrap_bio(to_client, to_server, server_hostname=host)
    server = server_side.wrap_bio(to_server, to_client, server_side=True)
    waiting = [client, server]
    for _ in range(20):
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                pass
    assert not waiting


@pytest.mark.parametrize("host", ["broker-1.example", "localhost", "127.0.0.1", "::1"])
def test_nodes_trust_each_other(tmp_path: Path, host: str) -> None:
    make_certificates(str(tmp_path), "test", {"broker-1.example": ["broker-1.example"]})
    handshake((tmp_path / "broker-1.example.pem").read_bytes(), (tmp_path / "ca.crt").read_bytes(), host)


def test_a_host_that_is_not_in_the_certificate_is_refused() -> None:
    authority = CertificateAuthority.new("test")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(authority.issue("a", ["a.example"]), authority.certificate_pem, "b.example")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(authority.issue("a", ["a.example"]), CertificateAuthority.new("x").certificate_pem, "a.example")


def test_what_is_there_stays_unless_it_lacks_a_host_or_ends_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = str(tmp_path / "certs")
    names = [os.path.basename(path) for path in make_certificates(where, "test", {"a": ["a"], "b": ["b"]})]
    assert names == ["ca.crt", "ca.key", "a.pem", "b.pem"]
    assert {path.stat().st_mode & 0o777 for path in Path(where).iterdir()} == {0o600}
    assert os.stat(where).st_mode & 0o777 == 0o700
    assert make_certificates(where, "test", {"a": ["a"], "b": ["b"]}) == []
    assert make_certificates(where, "test", {"a": ["a", "more"], "b": ["b"]}) == [os.path.join(where, "a.pem")]
    assert "more" in hosts_of(Path(where, "a.pem").read_bytes())
    years = end_of(Path(where, "a.pem").read_bytes()) - datetime.now(UTC)
    monkeypatch.setattr("raftwerk.cluster.local.certificates._RENEW_BEFORE", years + timedelta(days=1))
    assert make_certificates(where, "test", {"b": ["b"]}) == [os.path.join(where, "b.pem")]


def test_the_command(tmp_path: Path) -> None:
    where = str(tmp_path / "certs")
    done = CliRunner().invoke(cli, ["certificates", where, "n1", "n2", "--also", "kafka.example"])
    assert (done.exit_code, done.output.count("Made ")) == (0, 4)
    assert {"n2", "kafka.example", "localhost"} <= hosts_of(Path(where, "n2.pem").read_bytes())
    again = CliRunner().invoke(cli, ["certificates", where, "n1", "--also", "kafka.example"])
    assert again.output == "All are there.\n"
    assert CliRunner().invoke(cli, ["certificates", where, "../n1"]).exit_code == 2
    Path(where, "ca.key").write_text("nonsense")
    assert CliRunner().invoke(cli, ["certificates", where, "n3"]).exit_code == 2
