"""A key distribution centre of the test's own, without root: all that it reads and writes is in its directory."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.ports import free_port

REALM = "EXAMPLE.COM"
_PROGRAMS = ("krb5kdc", "kadmin.local", "kdb5_util", "kinit")
_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
_START_LIMIT_S = 20.0

KRB5_CONF = """[libdefaults]
default_realm = {realm}
dns_lookup_kdc = false
dns_lookup_realm = false
dns_canonicalize_hostname = false
rdns = false
udp_preference_limit = 1
[realms]
{realm} = {{
  kdc = 127.0.0.1:{port}
}}
"""
KDC_CONF = """[kdcdefaults]
kdc_listen = ""
kdc_tcp_listen = 127.0.0.1:{port}
[realms]
{realm} = {{
  database_name = {directory}/principal
  key_stash_file = {directory}/stash
  acl_file = {directory}/acl
  supported_enctypes = aes256-cts:normal
}}
[logging]
kdc = FILE:{directory}/kdc.log
"""


def skip_without_kerberos() -> None:
    """Skip where the library or a program is missing."""
    if importlib.util.find_spec("gssapi") is None:
        pytest.skip("the package gssapi is not installed (pip install 'raftwerk[kerberos]'): Kerberos is NOT tested")
    missing = [program for program in _PROGRAMS if shutil.which(program, path=_PATH) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed (Debian: krb5-kdc krb5-user): Kerberos is NOT tested")


class KeyDistributionCentre:
    """`environment` is what processes need to find it; `directory` holds key tables, too."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.config = directory / "krb5.conf"
        self.environment = {
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(directory / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{directory}/tickets",
            "KRB5RCACHEDIR": str(directory),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Make the database, and serve it."""
        port = free_port()
        values = {"realm": REALM, "port": port, "directory": self.directory}
        self.config.write_text(KRB5_CONF.format(**values))
        (self.directory / "kdc.conf").write_text(KDC_CONF.format(**values))
        self._run("kdb5_util", "create", "-s", "-P", "secret", "-r", REALM)
        probe = self.key_table("probe")
        program = shutil.which("krb5kdc", path=_PATH) or "krb5kdc"
        self._process = subprocess.Popen([program, "-n"], env=os.environ | self.environment)
        deadline = time.monotonic() + _START_LIMIT_S
        while not self._can_get_ticket("probe", probe):
            assert self._process.poll() is None, "krb5kdc has ended"
            assert time.monotonic() < deadline, "krb5kdc does not answer"

    def stop(self) -> None:
        """Serve no more."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def key_table(self, *principals: str, name: str | None = None) -> Path:
        """Add principals with random keys; returns the file with their keys."""
        path = self.directory / f"{name or principals[0].replace('/', '-')}.keytab"
        for principal in principals:
            self._run("kadmin.local", "-r", REALM, "addprinc", "-randkey", principal)
            self._run("kadmin.local", "-r", REALM, "ktadd", "-k", str(path), principal)
        return path

    def renew(self, principal: str) -> None:
        """Give a principal a new key, which its key tables do not have."""
        self._run("kadmin.local", "-r", REALM, "cpw", "-randkey", principal)

    def remove(self, principal: str) -> None:
        """Forget a principal; tickets for it hold until they expire."""
        self._run("kadmin.local", "-r", REALM, "delprinc", "-force", principal)

    def get_ticket(self, principal: str, key_table: Path, cache: Path) -> None:
        """`kinit` into a ticket cache."""
        self._run("kinit", "-k", "-t", str(key_table), "-c", f"FILE:{cache}", principal)

    def _can_get_ticket(self, principal: str, key_table: Path) -> bool:
        try:
            self.get_ticket(principal, key_table, self.directory / "probe.tickets")
        except AssertionError:
            return False
        return True

    def _run(self, program: str, *arguments: str) -> None:
        command = [shutil.which(program, path=_PATH) or program, *arguments]
        done = subprocess.run(
            command, env=os.environ | self.environment, capture_output=True, text=True, timeout=30, check=False
        )
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"


@contextmanager
def key_distribution_centre(directory: Path) -> Iterator[KeyDistributionCentre]:
    """One that serves. This process and those it starts find it, until the end."""
    skip_without_kerberos()
    centre = KeyDistributionCentre(directory)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in centre.environment.items():
            patch.setenv(name, value)
        try:
            centre.start()
            yield centre
        finally:
            centre.stop()
