"""An OpenID provider on loopback: discovery, authorization code, signed id tokens, its keys."""

from __future__ import annotations

import base64
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT_ID = "evenkeel"
CLIENT_SECRET = "between-the-two"


@dataclass
class IdentityProvider:
    """Whom it vouches for, and what it has given out."""

    url: str = ""
    people: tuple[tuple[str, bool], ...] = ()
    key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "one"}))
    given: dict[str, dict[str, object]] = field(default_factory=dict)

    def discovery(self) -> dict[str, object]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post"],
        }

    def form(self, asked: dict[str, str]) -> str:
        """A page with a button for each person, as a provider's own sign-in would be."""
        buttons = "".join(
            f'<a href="/chosen?{urlencode({**asked, "email": email})}">{email}</a><br>'
            for email, _ in self.people
        )
        return f"<h1>Who are you?</h1>{buttons}"

    def code(self, asked: dict[str, str]) -> str:
        code, now = secrets.token_urlsafe(16), int(time.time())
        self.given[code] = {
            "iss": self.url,
            "aud": asked["client_id"],
            "sub": asked["email"],
            "email": asked["email"],
            "email_verified": dict(self.people)[asked["email"]],
            "nonce": asked.get("nonce", ""),
            "iat": now,
            "exp": now + 300,
        }
        return code

    def id_token(self, code: str) -> str:
        return jwt.encode({"alg": "RS256", "kid": "one"}, self.given.pop(code), self.key)


@contextmanager
def identity_provider(people: tuple[tuple[str, bool], ...]) -> Iterator[IdentityProvider]:
    """Run a provider that knows these people: e-mail, and whether it has verified it."""
    provider = IdentityProvider(people=people)

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def answer(self, content: str, kind: str = "application/json", status: int = 200) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.end_headers()
            self.wfile.write(content.encode())

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
            if parts.path == "/.well-known/openid-configuration":
                self.answer(json.dumps(provider.discovery()))
            elif parts.path == "/keys":
                self.answer(json.dumps({"keys": [provider.key.as_dict(private=False)]}))
            elif parts.path == "/authorize" and asked["client_id"] == CLIENT_ID:
                self.answer(provider.form(asked), "text/html")
            elif parts.path == "/chosen":
                query = urlencode({"code": provider.code(asked), "state": asked["state"]})
                self.send_response(302)
                self.send_header("location", f"{asked['redirect_uri']}?{query}")
                self.end_headers()
            else:
                self.answer("{}", status=404)

        def do_POST(self) -> None:
            length = int(self.headers["content-length"])
            sent = {n: v[0] for n, v in parse_qs(self.rfile.read(length).decode()).items()}
            basic = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
            is_client = (
                self.headers.get("authorization") == f"Basic {basic}"
                or sent.get("client_secret") == CLIENT_SECRET
            )
            if not is_client or sent.get("code") not in provider.given:
                self.answer('{"error": "invalid_grant"}', status=400)
                return
            token = {"access_token": "unused", "token_type": "Bearer", "expires_in": 300}
            self.answer(json.dumps({**token, "id_token": provider.id_token(sent["code"])}))

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
