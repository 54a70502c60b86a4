"""Who is signed in is remembered by a signed cookie, for a while."""

import pytest

from evenkeel_dashboard.frame.sign_in_cookie import LASTS_S, SignInSessions
from evenkeel_dashboard.frame.user_access import Identity
from tests.fixtures.manual_clock import ManualClock

ANN = Identity("ann", "secret-token", "acme", may_act=True)


def signed_in(sessions: SignInSessions) -> str:
    cookie = sessions.redeem(sessions.ticket(ANN))
    assert cookie is not None
    return cookie


def test_a_ticket_becomes_a_cookie_that_finds_the_user() -> None:
    sessions = SignInSessions(ManualClock())
    ticket = sessions.ticket(ANN)
    cookie = sessions.redeem(ticket)
    assert cookie is not None and sessions.find(cookie) == ANN
    assert "secret-token" not in cookie and "ann" not in cookie
    assert sessions.redeem(ticket) is None, "a ticket is valid once"


def test_a_ticket_is_valid_for_a_minute() -> None:
    clock = ManualClock()
    sessions = SignInSessions(clock)
    ticket = sessions.ticket(ANN)
    clock.now_s += 61
    assert sessions.redeem(ticket) is None


def test_a_session_ends_after_twelve_hours_or_by_signing_out() -> None:
    clock = ManualClock()
    sessions = SignInSessions(clock)
    first, second = signed_in(sessions), signed_in(sessions)
    sessions.end(first)
    assert sessions.find(first) is None
    clock.now_s += LASTS_S - 1
    assert sessions.find(second) == ANN
    clock.now_s += 2
    assert sessions.find(second) is None


def test_signing_out_of_a_page_that_never_saw_its_cookie_ends_the_session() -> None:
    sessions = SignInSessions(ManualClock())
    other = signed_in(sessions)
    ticket = sessions.ticket(ANN)
    cookie = sessions.redeem(ticket)
    sessions.end("", ticket)
    assert cookie is not None and sessions.find(cookie) is None
    pending = sessions.ticket(ANN)
    sessions.end("", pending)
    assert sessions.redeem(pending) is None
    sessions.end("", "")
    assert sessions.find(other) == ANN


@pytest.mark.parametrize(
    "change",
    [lambda c: c[:-1], lambda c: "x" + c, lambda c: c.split(".")[0], lambda c: "", lambda c: "é.ü"],
)
def test_a_cookie_that_was_changed_is_nobody(change: object) -> None:
    sessions = SignInSessions(ManualClock())
    assert sessions.find(change(signed_in(sessions))) is None  # type: ignore[operator]


def test_a_cookie_of_another_process_is_nobody() -> None:
    assert SignInSessions(ManualClock()).find(signed_in(SignInSessions(ManualClock()))) is None


def test_there_are_at_most_a_thousand_sessions() -> None:
    sessions = SignInSessions(ManualClock())
    first = signed_in(sessions)
    others = [signed_in(sessions) for _ in range(1_000)]
    assert sessions.find(first) is None
    assert sessions.find(others[-1]) == ANN


def test_a_page_that_stays_open_ends_with_its_sign_in() -> None:
    """It reads with the token that it began with, and is not loaded again."""
    clock = ManualClock()
    sessions = SignInSessions(clock)
    ticket = sessions.ticket(ANN)
    assert sessions.lasts("", ticket), "its cookie is not set yet"
    cookie = sessions.redeem(ticket) or ""
    clock.now_s += LASTS_S - 1
    assert sessions.lasts(cookie) and sessions.lasts("", ticket)
    clock.now_s += 2
    assert not sessions.lasts(cookie) and not sessions.lasts("", ticket)


@pytest.mark.parametrize("signs_out", ["the page that signed in", "a page loaded since"])
def test_signing_out_ends_all_pages_of_a_sign_in_and_no_others(signs_out: str) -> None:
    sessions = SignInSessions(ManualClock())
    ticket, other = sessions.ticket(ANN), sessions.ticket(ANN)
    cookie = sessions.redeem(ticket) or ""
    if signs_out == "a page loaded since":
        sessions.end(cookie)
    else:
        sessions.end("", ticket)
    assert not sessions.lasts(cookie) and not sessions.lasts("", ticket)
    assert sessions.lasts("", other)


def test_dashboards_on_one_host_have_a_cookie_each() -> None:
    assert SignInSessions().cookie != SignInSessions().cookie
