"""Actions through the dashboard and who may run them: operator API, roles, sign-in."""

import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.fixtures.collector_process import copy_new_store
from tests.fixtures.dashboard_process import (
    SLO,
    SLOS,
    Platform,
    assert_no_exception,
    evenkeel,
    opened,
    stop,
    wait_for,
    wait_until_stored,
)
from tests.fixtures.identity_provider import (
    CLIENT_ID,
    CLIENT_SECRET,
    identity_provider,
)
from tests.fixtures.served_model import free_port

TOKENS = {"reader": ["query"], "operator": ["admin"], "sender": ["ingest"]}
TENANT_TOKEN = "of-globex"
TENANT = "globex"


def test_acknowledging_in_the_browser_is_written_down(platform: Platform, browser: Browser) -> None:
    page = opened(browser, f"{platform.dashboard_url}/alerts?range=24h&live=off")
    page.get_by_text("Acknowledge or silence").first.click()
    card = page.locator(".st-key-card-alert-0")
    card.get_by_label("your name, for the audit log").fill("ann")
    card.get_by_label("what you are doing about it").fill("looking")
    card.get_by_role("button", name="Acknowledge").click()
    expect(page.get_by_text("acknowledged by ann")).to_be_visible()
    assert_no_exception(page)
    page.close()
    listed = httpx.get(f"{platform.http_url}/api/alerts").json()
    assert [a["acknowledged_by"] for a in listed["alerts"] if a["state"] == "firing"] == ["ann"]
    newest = httpx.get(f"{platform.http_url}/api/audit").json()["entries"][0]
    assert (newest["by"], newest["action"], newest["details"]["slo"]) == ("ann", "acknowledge", SLO)


def test_a_correction_through_the_api_is_listed_and_revoked(platform: Platform) -> None:
    api = f"{platform.http_url}/api"
    order = {"slo": SLO, "begin": "2026-01-01T00:00Z", "end": "2026-01-01T01:00Z",
             "reason": "maintenance", "comment": "a new switch", "by": "bob"}  # fmt: skip
    made = httpx.post(f"{api}/correct", json=order).json()
    assert [c["id"] for c in httpx.get(f"{api}/corrections").json()["corrections"]] == [made["id"]]
    httpx.post(f"{api}/revoke", json={"id": made["id"], "by": "bob"}).raise_for_status()
    again = httpx.post(f"{api}/revoke", json={"id": made["id"], "by": "bob"})
    assert again.status_code == 400 and "is in force" in again.json()["error"]


def test_a_report_is_downloaded(platform: Platform) -> None:
    begin = time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime(time.time() - 7200))
    parameters = {"from": begin, "to": "2100-01-01T00:00Z", "format": "markdown"}
    text = httpx.get(f"{platform.http_url}/api/report", params=parameters, timeout=120).text
    assert SLO in text
    parameters["from"] = "2020-01-01T00:00Z"
    response = httpx.get(f"{platform.http_url}/api/report", params=parameters)
    assert response.status_code == 400, "more than 400 days"


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        pytest.param({}, json.dumps({"slo": SLO, "by": "eve"}), 415, id="no JSON, as a form sends"),
        pytest.param({"content-type": "application/json"}, "{", 400, id="broken JSON"),
        pytest.param({"content-type": "application/json"}, "{}", 400, id="nobody does it"),
    ],
)
def test_an_action_that_makes_no_sense_is_refused(
    platform: Platform, headers: dict[str, str], body: str, status: int
) -> None:
    response = httpx.post(f"{platform.http_url}/api/silence", content=body, headers=headers)
    assert response.status_code == status, response.text


@dataclass(frozen=True, slots=True)
class Guarded:
    """A collector that requires tokens, and a dashboard with token sign-in."""

    http_url: str
    query_url: str
    dashboard_url: str


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder: Path = tmp_path_factory.mktemp("guarded")
    lines = [
        f'[[token]]\nname = "{name}"\nsha256 = "{hashlib.sha256(name.encode()).hexdigest()}"\n'
        f"scopes = {json.dumps(scopes)}\n"
        for name, scopes in TOKENS.items()
    ]
    lines.append(
        f'[[token]]\nname = "tenant"\nscopes = ["query"]\ntenant = "{TENANT}"\n'
        f'sha256 = "{hashlib.sha256(TENANT_TOKEN.encode()).hexdigest()}"\n'
    )
    (folder / "access.toml").write_text("".join(lines), encoding="utf-8")
    (folder / "slos.yaml").write_text(SLOS, encoding="utf-8")
    collect = (
        "collect", "--json", "--data-dir", str(folder / "data"), "--http-port", "0",
        "--grpc-port", "0", "--query-port", "0",
    )  # fmt: skip
    copy_new_store(folder / "data" / "store")
    # Filled before tokens are required.
    filling = evenkeel(*collect)
    assert filling.stdout is not None
    addresses = json.loads(filling.stdout.readline())
    simulation = evenkeel(
        "simulate", "--endpoint", addresses["http_url"], "--requests", "300", "--duration", "30m"
    )
    _, error = simulation.communicate(timeout=900)
    assert simulation.returncode == 0, error
    wait_until_stored(addresses["query_url"], 300)
    stop(filling)
    collector = evenkeel(
        *collect, "--access", str(folder / "access.toml"), "--slos", str(folder / "slos.yaml")
    )
    assert collector.stdout is not None
    addresses = json.loads(collector.stdout.readline())
    port = free_port()
    dashboard = evenkeel(
        "dashboard", "--port", str(port), "--query-url", addresses["query_url"],
        "--collector-url", addresses["http_url"], "--sign-in", "token",
    )  # fmt: skip
    wait_for(f"http://127.0.0.1:{port}/_stcore/health", dashboard)
    yield Guarded(addresses["http_url"], addresses["query_url"], f"http://127.0.0.1:{port}")
    stop(dashboard)
    stop(collector)


@pytest.mark.parametrize(
    ("token", "read", "act"),
    [
        pytest.param(None, 401, 401, id="nobody"),
        pytest.param("stranger", 401, 401, id="an unknown token"),
        pytest.param("sender", 403, 403, id="a sender"),
        pytest.param("reader", 200, 403, id="a reader"),
        pytest.param("operator", 200, 200, id="an operator"),
    ],
)
def test_a_role_decides_what_one_may(
    guarded: Guarded, token: str | None, read: int, act: int
) -> None:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    found = httpx.get(f"{guarded.http_url}/api/alerts", headers=headers)
    order = {"slo": "chat-ttft", "by": "ann"}
    done = httpx.post(f"{guarded.http_url}/api/silence", headers=headers, json=order)
    assert (found.status_code, done.status_code) == (read, act)


def test_only_who_signs_in_sees_anything(guarded: Guarded, browser: Browser) -> None:
    page = browser.new_page()
    page.goto(f"{guarded.dashboard_url}/alerts")
    token = page.get_by_label("token")
    expect(token).to_be_visible()
    assert page.get_by_text("data as of").count() == 0
    token.fill("stranger")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("unknown token; see the access file (--access)")).to_be_visible()
    page.get_by_label("your name").fill("rita")
    token.fill("reader")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("data as of")).to_be_visible()
    expect(page.get_by_text("signed in as rita")).to_be_visible()
    assert page.get_by_text("Add or end a silence").count() == 0, "a reader may change nothing"
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("token")).to_be_visible()
    assert_no_exception(page)
    page.close()


def test_signing_in_survives_a_reload_until_signing_out(guarded: Guarded, browser: Browser) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{guarded.dashboard_url}/alerts")
    page.get_by_label("your name").fill("rita")
    page.get_by_label("token").fill("reader")
    with page.expect_response("**/session") as exchanged:
        page.get_by_role("button", name="Sign in").click()
    assert exchanged.value.status == 204
    expect(page.get_by_text("signed in as rita")).to_be_visible()
    (cookie,) = (c for c in context.cookies() if c["name"].startswith("evenkeel_session"))
    assert cookie["httpOnly"] and cookie["sameSite"] == "Strict"
    assert "reader" not in cookie["value"]
    page.reload()
    expect(page.get_by_text("signed in as rita")).to_be_visible()
    second = context.new_page()
    second.goto(f"{guarded.dashboard_url}/latency")
    expect(second.get_by_text("signed in as rita")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("token")).to_be_visible()
    # It asks by itself, at its next refresh.
    expect(second.get_by_label("token", exact=True)).to_be_visible()
    expect(second.get_by_text("data as of")).to_have_count(0)
    page.reload()
    expect(page.get_by_label("token")).to_be_visible()
    context.close()


def test_a_ticket_that_was_made_up_is_no_session(guarded: Guarded) -> None:
    session = f"{guarded.dashboard_url}/session"
    assert httpx.post(session, content="made-up").status_code == 403
    assert httpx.post(session, content="x" * 10_000).status_code == 413
    assert "set-cookie" not in httpx.post(session, content="").headers


def test_a_tenant_sees_only_its_own(guarded: Guarded, browser: Browser) -> None:
    page = browser.new_page()
    page.goto(f"{guarded.dashboard_url}/explore?range=6h&live=off&sql=SELECT+tenant+FROM+requests+"
              "GROUP+BY+tenant")  # fmt: skip
    page.get_by_label("token").fill(TENANT_TOKEN)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text(f"tenant {TENANT}")).to_be_visible()
    expect(page.locator(".st-key-card-sql td")).to_have_text(TENANT)
    seen = page.locator(".st-key-card-found tbody tr td:nth-child(10)")
    expect(seen.first).to_have_text(TENANT)
    assert set(seen.all_inner_texts()) == {TENANT}
    # A link between pages must not reload the page, which would ask for the token again.
    page.locator(".st-key-card-found tbody a").first.click()
    expect(page.get_by_text("Other requests in flight")).to_be_visible()
    page.get_by_role("link", name="Alerts").click()
    expect(page.get_by_text("cover all tenants")).to_be_visible()
    assert_no_exception(page)
    page.close()


def test_who_signs_in_next_is_not_shown_what_was_read_before(
    guarded: Guarded, browser: Browser
) -> None:
    counts = []
    for token in ("reader", TENANT_TOKEN):
        page = browser.new_page()
        page.goto(f"{guarded.dashboard_url}/latency?range=6h&live=off&by=tenant")
        page.get_by_label("token").fill(token)
        page.get_by_role("button", name="Sign in").click()
        rows = page.locator(".st-key-card-cohorts tbody tr")
        expect(rows.first).to_be_visible()
        counts.append(rows.count())
        page.close()
    assert counts == [6, 1]


PEOPLE = (("ann@example.com", True), ("mallory@example.com", True), ("bob@example.com", False))


@pytest.fixture(scope="module")
def with_provider(guarded: Guarded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A dashboard with OIDC sign-in; Ann and Bob are in its users file."""
    folder, port = tmp_path_factory.mktemp("oidc"), free_port()
    (folder / "users.toml").write_text(
        '[[user]]\nemail = "Ann@Example.com"\ntoken_env = "EVENKEEL_TEST_READER"\n'
        '[[user]]\nemail = "bob@example.com"\ntoken_env = "EVENKEEL_TEST_READER"\n'
    )
    with identity_provider(PEOPLE) as provider:
        secrets = {
            "redirect_uri": f"http://127.0.0.1:{port}/oauth2callback",
            "cookie_secret": "x" * 40,
            "client_id": CLIENT_ID,
            "client_secret": CLIENT_SECRET,
            "server_metadata_url": f"{provider.url}/.well-known/openid-configuration",
        }
        lines = [f"{name} = {json.dumps(value)}" for name, value in secrets.items()]
        (folder / "secrets.toml").write_text("[auth]\n" + "\n".join(lines))
        dashboard = evenkeel(
            "dashboard", "--port", str(port), "--query-url", guarded.query_url,
            "--collector-url", guarded.http_url, "--sign-in", "oidc",
            "--users", str(folder / "users.toml"), "--oidc-secrets", str(folder / "secrets.toml"),
            environment={"EVENKEEL_TEST_READER": "reader"},
        )  # fmt: skip
        wait_for(f"http://127.0.0.1:{port}/_stcore/health", dashboard)
        yield f"http://127.0.0.1:{port}"
        stop(dashboard)


@pytest.mark.parametrize(
    ("email", "seen"),
    [
        pytest.param("ann@example.com", "signed in as ann@example.com", id="a user"),
        pytest.param("mallory@example.com", "You are not in the list of users", id="a stranger"),
        pytest.param(
            "bob@example.com", "You are not in the list of users", id="an unverified e-mail"
        ),
    ],
)
def test_people_sign_in_with_their_provider(
    with_provider: str, browser: Browser, email: str, seen: str
) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{with_provider}/latency?range=6h&live=off")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("link", name=email).click()
    expect(page.get_by_text(seen)).to_be_visible()
    is_let_in = seen.startswith("signed in")
    if is_let_in:
        expect(page.get_by_text("data as of").first).to_be_visible()
    else:
        assert page.get_by_text("data as of").count() == 0
    assert_no_exception(page)
    context.close()
