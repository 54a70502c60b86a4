"""Signs users in to the dashboard, and remembers them across reloads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import streamlit as st

from evenkeel.errors import ConfigurationError
from evenkeel.settings import load
from evenkeel_dashboard.draw import markup
from evenkeel_dashboard.frame.collector_api import CollectorError, ask_json
from evenkeel_dashboard.frame.configuration import DashboardSettings, SignIn
from evenkeel_dashboard.frame.sign_in_cookie import SignInSessions
from evenkeel_dashboard.frame.user_access import Identity, read_users, token_of

_IDENTITY = "identity"
_TICKET = "sign_in_ticket"
_SENT = "sign_in_ticket_sent"
_KEPT_S = 30.0
# Streamlit's pages cannot set a cookie; the browser exchanges the ticket for one.
_exchanges = st.components.v2.component(
    "evenkeel_ticket",
    js="""export default ({ data }) => {
  fetch(new URL("./session", document.baseURI), { method: "POST", body: data.ticket })
}""",
    isolate_styles=False,
)
sessions: Callable[[], SignInSessions] = st.cache_resource(show_spinner=False)(SignInSessions)


def settings() -> DashboardSettings:
    """Return the settings that `evenkeel dashboard` passed in the environment."""
    return load(DashboardSettings, {}).settings


def identity() -> Identity:
    """Return the current user; before `require` succeeds, one without access to anything."""
    found = st.session_state.get(_IDENTITY)
    return found if isinstance(found, Identity) else Identity("", None)


def require() -> bool:
    """Return whether the user is signed in, and draw the sign-in form if not."""
    chosen = settings()
    match chosen.sign_in:
        case SignIn.NONE:
            secret = chosen.token.get_secret_value() if chosen.token else None
            st.session_state[_IDENTITY] = _known("", secret)
            return True
        case SignIn.TOKEN:
            return _is_known() or _ask_for_token()
        case SignIn.OIDC:
            return _ask_provider(chosen.users)


def still_signed_in() -> bool:
    """Return whether the sign-in lasts: it ends after 12 hours, or as another page signs out."""
    if settings().sign_in is not SignIn.TOKEN:
        return True
    return sessions().lasts(_cookie(), st.session_state.get(_SENT, ""))


def sign_out_button() -> None:
    """Draw the signed-in user and the sign-out button, if sign-in is on."""
    how = settings().sign_in
    if how is SignIn.NONE:
        return
    who = identity()
    whose = f", tenant {who.tenant}" if who.tenant else ""
    with st.container(horizontal=True, horizontal_alignment="right", vertical_alignment="center"):
        st.caption(markup.plain(f"signed in as {who.name}{whose}"), width="content")
        if st.button("Sign out", type="tertiary"):
            sessions().end(_cookie(), st.session_state.get(_SENT, ""))
            # Whoever signs in next in this tab must not see what was read for this user.
            st.session_state.clear()
            if how is SignIn.OIDC:
                st.logout()
            st.rerun()


def _cookie() -> str:
    return str(st.context.cookies.get(sessions().cookie, ""))


def _is_known() -> bool:
    """Return whether this session, or this browser before a reload, has signed in."""
    if isinstance(st.session_state.get(_IDENTITY), Identity):
        if still_signed_in():
            if ticket := st.session_state.pop(_TICKET, None):
                with st.container(key="sign-in-ticket"):
                    _exchanges(key="ticket", data={"ticket": ticket})
            return True
        # The sign-in has ended elsewhere, or after its time.
        st.session_state.clear()
    found = sessions().find(_cookie())
    if found is None or found.token is None:
        return False
    try:
        # The token may have been revoked since.
        st.session_state[_IDENTITY] = _vouched(found.name, found.token)
    except CollectorError as error:
        if error.is_refusal:
            sessions().end(_cookie())
        return False
    return True


def _ask_for_token() -> bool:
    with (
        st.container(border=True, key="card-sign-in", width=480),
        st.form("sign-in", border=False),
    ):
        st.html('<div class="ek-title">Sign in<small>with a token of the collector</small></div>')
        name = st.text_input("your name, for the audit log", autocomplete="username", max_chars=100)
        token = st.text_input("token", type="password", autocomplete="current-password")
        is_sent = st.form_submit_button("Sign in", type="primary")
    if not is_sent:
        return False
    try:
        who = _vouched(name.strip() or "anonymous", token.strip())
    except CollectorError as error:
        st.error(markup.plain(f"Not signed in: {error}" if error.status else str(error)))
        return False
    st.session_state[_IDENTITY] = who
    st.session_state[_TICKET] = st.session_state[_SENT] = sessions().ticket(who)
    st.rerun()
    return True


def _ask_provider(users: Path | None) -> bool:
    if not st.user.is_logged_in:
        st.html('<div class="ek-title">Sign in<small>with your organisation</small></div>')
        st.button("Sign in", on_click=st.login, type="primary")
        return False
    # An address that the provider has not verified may be anyone's.
    email = str(st.user.get("email") or "") if st.user.get("email_verified", True) else ""
    if isinstance(found := st.session_state.get(_IDENTITY), Identity) and found.name == email:
        return True
    try:
        token = token_of(email, read_users(users))
        if not email or token is None:
            who = email or "No e-mail"
            st.html(
                markup.hint(
                    "You are not in the list of users",
                    f"{who}: ask for an entry in the file given with --users.",
                )
            )
            st.button("Sign out", on_click=st.logout)
            return False
        st.session_state[_IDENTITY] = _vouched(email, token)
    except (CollectorError, ConfigurationError) as error:
        st.error(markup.plain(str(error)))
        return False
    return True


def _vouched(name: str, token: str) -> Identity:
    """Return the user that a token belongs to, according to the collector.

    Raises:
        CollectorError: If it does not know the token, or does not answer.
    """
    found = ask_json(settings().collector_url, "me", token)
    return Identity(name, token, found.get("tenant"), bool(found.get("may_act")))


def _ask_who(url: str, token: str | None) -> tuple[str | None, bool]:
    try:
        found = ask_json(url, "me", token)
    except CollectorError:
        # The store can still be read, but no actions can be run.
        return None, False
    return found.get("tenant"), bool(found.get("may_act"))


_kept_who = st.cache_data(ttl=_KEPT_S, show_spinner=False)(_ask_who)


def _known(name: str, token: str | None) -> Identity:
    tenant, may_act = _kept_who(settings().collector_url, token)
    return Identity(name, token, tenant, may_act)
