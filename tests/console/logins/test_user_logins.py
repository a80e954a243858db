"""A console of a secured cluster: users log in, have their own rights, and log out."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient as Admin
from support.console.browser import CHROMIUM
from support.console.console_process import CHANGE, console
from support.e2e.secured_clients import Login

from raftwerk.cluster.client.admin_client import AdminClient
from raftwerk.cluster.client.cluster_client import ClusterClient
from raftwerk.cluster.http_logins.user_login import UserLogins
from raftwerk.cluster.local.client_files import ADMIN_PROPERTIES, AUTHORITY_FILE, SECURITY_DIR
from raftwerk.cluster.settings.client_properties import load_properties, read_properties
from raftwerk.console.errors import RequestRefusedError
from raftwerk.console.logins.login_limit import TRIES_OF_ADDRESS, TRIES_OF_USER
from raftwerk.console.logins.sessions import SessionLimits, Sessions
from raftwerk.console.metrics.metrics_watch import MetricsWatch
from raftwerk.console.records.record_decoding import RecordDecoder
from raftwerk.console.service import ConsoleService, SharedParts
from raftwerk.runtime.http.client import fetch
from raftwerk.runtime.loop import real_runtime
from raftwerk.testkit.process_cluster import TestCluster

pytestmark = pytest.mark.process
MECHANISM = "SCRAM-SHA-512"
SLOWLY_FENCED = {"broker.session.timeout.ms": 60_000}


@pytest.fixture(scope="module")
def cluster() -> Iterator[TestCluster]:
    with TestCluster.start(1, secure=True) as running:
        yield running


class User:
    """A user's browser, as far as it sends a cookie."""

    def __init__(self, url: str) -> None:
        self._host = url.removeprefix("http://")
        self.cookie = ""

    def ask(self, path: str, fields: Any = None, **headers: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(self._host, timeout=60)
        sent = {**(CHANGE if fields is not None else {}), "Cookie": self.cookie, **headers}
        body = None if fields is None else json.dumps(fields)
        connection.request("GET" if fields is None else "POST", path, body, sent)
        answer = connection.getresponse()
        self.cookie = (answer.getheader("set-cookie") or self.cookie).partition(";")[0]
        self.told = answer.getheader("set-cookie")
        found = json.loads(answer.read())
        connection.close()
        return answer.status, found

    def log_in(self, user: str, password: str) -> tuple[int, Any]:
        return self.ask("/api/login", {"user": user, "password": password})


def admin_password(cluster: TestCluster) -> str:
    properties = read_properties(os.path.join(cluster.plan.directory, ADMIN_PROPERTIES), real_runtime())
    found = re.search(r'password="([^"]+)"', properties["sasl.jaas.config"])
    assert found is not None
    return found[1]


def logged_in_admin(cluster: TestCluster, url: str) -> User:
    admin = User(url)
    assert admin.log_in("admin", admin_password(cluster)) == (200, {"done": "logged in"})
    return admin


def test_nothing_but_the_page_is_there_without_a_login(url: str) -> None:
    nobody = User(url)
    for path in ("/api/about", "/api/topics/x", "/events", "/chaos-report"):
        assert nobody.ask(path)[0] == 401, path
    assert nobody.ask("/api/topics", {"name": "x"})[0] == 401
    nobody.cookie = f"raftwerk-console-{url.rpartition(':')[2]}={'0' * 64}"
    assert nobody.ask("/api/about")[0] == 401


def test_each_user_has_the_rights_of_its_acls(cluster: TestCluster, url: str) -> None:
    admin, alice = logged_in_admin(cluster, url), User(url)
    assert admin.ask("/api/topics", {"name": "orders", "partitions": 1, "replication_factor": 1})[0] == 200
    assert admin.ask("/api/users", {"user": "alice", "password": "of alice"})[0] == 200
    entry = {"permission": "allow", "principal": "alice", "resource_type": "topic", "resource_name": "orders"}
    assert admin.ask("/api/acls", {**entry, "operations": ["write", "describe"], "execute": True})[0] == 200
    assert alice.log_in("alice", "of alice")[0] == 200
    assert alice.ask("/api/about")[1]["user"] == "alice"
    assert alice.ask("/api/topics/orders/records", {"value": "v"}) == (200, {"partition": 0, "offset": 0})
    status, found = alice.ask("/api/topics/orders")
    assert (status, found["configs"]) == (200, []) and "DescribeConfigs on topic orders" in found["why_no_configs"]
    refusals = {
        "Read on topic orders": alice.ask("/api/topics/orders/records"),
        "Delete on topic orders": alice.ask("/api/topics/orders/delete", {}),
        "Create on topic more": alice.ask("/api/topics", {"name": "more"}),
        "Describe on the cluster": alice.ask("/api/acls"),
        "Alter on the cluster": alice.ask("/api/nodes/1/kill", {}),
    }
    for right, (status, told) in refusals.items():
        assert status == 403 and f"needs the right {right}," in told["error"], (right, told)
    assert alice.ask("/api/chaos/start", {"faults": ["kill"]})[0] == 403
    assert admin.ask("/api/acls")[0] == 200, "each session acts as its own user"


def test_a_session_is_for_its_own_page_and_ends_with_the_logout(cluster: TestCluster, url: str) -> None:
    admin = logged_in_admin(cluster, url)
    again = admin.log_in("admin", admin_password(cluster))
    assert again[0] == 200 and admin.told is not None
    assert admin.told.endswith("; Path=/; HttpOnly; SameSite=Strict")
    for headers in ({"Origin": "http://attacker.example"}, {"Host": "attacker.example"}):
        assert admin.ask("/api/topics", {"name": "x"}, **headers)[0] in (403, 421)
    cookie = admin.cookie
    assert admin.ask("/api/logout", {})[0] == 200
    admin.cookie = cookie
    assert admin.ask("/api/about")[0] == 401


def test_a_session_holds_whatever_cookies_other_programs_of_the_host_have(cluster: TestCluster, url: str) -> None:
    admin = logged_in_admin(cluster, url)
    own = admin.cookie
    for others in ('prefs={"a":1}', "a b=c", 'x="unclosed', "=", ";;", "\xff=\xff", "x" + own):
        for cookie in (f"{others}; {own}", f"{own};{others}"):
            admin.cookie = cookie
            assert admin.ask("/api/about")[0] == 200, cookie
        admin.cookie = others
        assert admin.ask("/api/about")[0] == 401, others


def test_wrong_passwords_have_to_wait(cluster: TestCluster, url: str) -> None:
    guesser = User(url)
    assert {guesser.log_in("mallory", f"guess {one}")[0] for one in range(TRIES_OF_USER)} == {401}
    status, told = guesser.log_in("mallory", "guess")
    assert (status, told["error"].startswith("too many logins have failed: try again in ")) == (429, True)
    logged_in_admin(cluster, url)  # others log in meanwhile
    assert guesser.log_in("x" * 2000, "guess")[0] == 400


@pytest.mark.parametrize(
    ("user", "password"), [("bob\u00b2", "m\u00b2"), ("carl", "e\u0301t\u00e9"), ("dora", "\U0001f642")]
)
def test_a_name_and_a_password_are_taken_as_they_are(cluster: TestCluster, url: str, user: str, password: str) -> None:
    """SASLprep would make others of them, or refuse them; no other client of the cluster has it."""
    assert logged_in_admin(cluster, url).ask("/api/users", {"user": user, "password": password})[0] == 200
    assert User(url).log_in(user, password)[0] == 200
    ca = os.path.join(cluster.plan.directory, SECURITY_DIR, AUTHORITY_FILE)
    login = Login(cluster.bootstrap_servers, Path(ca), None, MECHANISM, user, password)
    assert Admin(login.librdkafka()).list_topics(timeout=30).cluster_id == cluster.plan.cluster_id


def test_another_name_that_looks_the_same_is_another_user(cluster: TestCluster, url: str) -> None:
    """Otherwise each way to write a name would have guesses of its own."""
    for alias in ("ad\u00admin", "\uff41dmin"):
        assert User(url).log_in(alias, admin_password(cluster))[0] == 401


@pytest.mark.parametrize(
    ("user", "password"), [("\ud800", "x"), ("eve", "\ud800"), ("e\0ve", "x"), ("eve", "\a"), ("", "x")]
)
def test_a_login_that_no_user_can_have_is_a_wrong_one_like_others(url: str, user: str, password: str) -> None:
    assert User(url).log_in(user, password)[0] in (400, 401)


def guess(url: str, client: str, number: int) -> int:
    """The status of a login with a wrong password, for which the client says that it has another address."""
    fields = {"user": f"user-{number}", "password": "guess"}
    return User(url).ask("/api/login", fields, **{"X-Forwarded-For": client})[0]


def test_nobody_chooses_the_address_for_which_wrong_passwords_count(cluster: TestCluster) -> None:
    with console(cluster) as url:
        told = [guess(url, f"10.0.0.{one}", one) for one in range(TRIES_OF_ADDRESS + 1)]
        assert told == [401] * TRIES_OF_ADDRESS + [429]


def test_a_proxy_that_is_named_says_who_its_clients_are_and_that_they_use_https(cluster: TestCluster) -> None:
    with console(cluster, "--proxy", "127.0.0.1") as url:
        told = [guess(url, f"{one}.0.0.1, 10.0.0.1", one) for one in range(TRIES_OF_ADDRESS + 1)]
        assert told == [401] * TRIES_OF_ADDRESS + [429], "the last address is the one that the proxy saw"
        admin = User(url)
        fields = {"user": "admin", "password": admin_password(cluster)}
        https = {"X-Forwarded-For": "10.0.0.2", "X-Forwarded-Proto": "https"}
        assert admin.ask("/api/login", fields, **https)[0] == 200
        assert "; Secure" in (admin.told or "")


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: the console's pages are NOT tested")
def test_a_user_logs_in_and_out_in_a_browser(cluster: TestCluster, url: str) -> None:
    from playwright.sync_api import expect, sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 380, "height": 800})
        page.set_default_timeout(30_000)
        page.goto(f"{url}/#/access")
        page.get_by_label("User").fill("admin")
        page.get_by_label("Password").fill("a guess")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_text("the cluster does not take this user and password")).to_be_visible(timeout=30_000)
        page.get_by_label("Password").fill(admin_password(cluster))
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_text("Access control lists")).to_be_visible(timeout=30_000)
        page.reload()
        expect(page.get_by_text("Access control lists")).to_be_visible(timeout=30_000)
        widths = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        assert widths[0] <= widths[1]
        page.get_by_role("button", name="Log out admin").click()
        expect(page.get_by_role("button", name="Log in")).to_be_visible(timeout=30_000)
        page.reload()
        expect(page.get_by_role("button", name="Log in")).to_be_visible(timeout=30_000)
        assert page.get_by_text("Access control lists").count() == 0
        browser.close()


def test_read_only_holds_for_every_user(cluster: TestCluster) -> None:
    with console(cluster, "--read-only") as url:
        admin = logged_in_admin(cluster, url)
        status, told = admin.ask("/api/topics", {"name": "x"})
        assert (status, "--read-only" in told["error"]) == (403, True)
        assert admin.ask("/api/logout", {})[0] == 200


def test_without_logins_all_have_the_rights_of_the_command(cluster: TestCluster) -> None:
    with console(cluster, "--no-login") as url:
        status, about = User(url).ask("/api/about")
        assert (status, about["user"]) == (200, None)
        assert User(url).log_in("admin", "x")[0] == 404


def test_a_session_ends_when_the_password_is_taken_away_or_its_time_is_over(cluster: TestCluster) -> None:
    runtime = real_runtime()
    admin_login = load_properties(os.path.join(cluster.plan.directory, ADMIN_PROPERTIES), runtime).login
    assert admin_login is not None
    metrics = MetricsWatch(None, fetch, runtime.clock)
    shared = SharedParts(cluster.bootstrap_servers, runtime, RecordDecoder(None), metrics, None, False)
    logins = UserLogins(MECHANISM, admin_login.tls, {}, runtime.secret_bytes, runtime.clock.wall_ms)

    def new_service(client: ClusterClient, watching: ClusterClient, user: str | None) -> ConsoleService:
        return ConsoleService(client, watching, shared, user)

    async def main() -> None:
        async with ClusterClient(cluster.bootstrap_servers, login=admin_login) as client:
            admin = AdminClient(client)
            await admin.set_scram_password("bob", "of bob", {MECHANISM: 4096}, runtime.secret_bytes)
            place = (cluster.bootstrap_servers, logins, new_service, runtime.secret_bytes)
            async with Sessions(*place, SessionLimits(verified_s=0.0001, sessions=1)) as sessions:
                first = await sessions.log_in("bob", "of bob", "here")
                second = await sessions.log_in("bob", "of bob", "here")
                assert await sessions.of(first) is None, "the session that was used longest ago makes room"
                found = await sessions.of(second)
                assert found is not None and found.user == "bob"
                await admin.remove_scram_password("bob", [MECHANISM])
                async with asyncio.timeout(30):
                    while await sessions.of(second) is not None:
                        pass
                assert found.service.stopped.is_set()
                with pytest.raises(RequestRefusedError):
                    await sessions.log_in("bob", "of bob", "here")
            await admin.set_scram_password("bob", "of bob", {MECHANISM: 4096}, runtime.secret_bytes)
            async with Sessions(*place, SessionLimits(idle_s=0.0)) as sessions:
                token = await sessions.log_in("bob", "of bob", "here")
                assert await sessions.of(token) is None

    asyncio.run(main())


def test_pages_and_actions_do_not_wait_for_a_node_that_hangs() -> None:
    """The first broker is paused right after it has answered, so that its connections are the ones that are kept."""
    with TestCluster.start(2, secure=True, separate=True, settings=SLOWLY_FENCED) as cluster:
        topic = cluster.create_topic(partitions=4)
        with console(cluster) as url:
            admin = logged_in_admin(cluster, url)
            of_topic = [f"topics/{topic}", f"topics/{topic}/records"]
            pages = [*of_topic, "groups", "transactions", "log-dirs", "reassignments"]
            for page in pages:
                assert admin.ask(f"/api/{page}")[0] == 200
            began = time.monotonic()
            for fault in ("pause", "continue", "pause"):
                assert admin.ask(f"/api/nodes/1/{fault}", {})[0] == 200
            assert time.monotonic() - began < 5  # it took ten seconds to ask whether the node may be continued
            for page in pages:
                began = time.monotonic()
                status, told = admin.ask(f"/api/{page}")
                assert status == 200, (page, told)
                assert time.monotonic() - began < 5, page
            assert admin.ask("/api/nodes/1/continue", {})[0] == 200
