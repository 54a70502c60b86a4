"""Texts with a secret or a personal datum each, what senders disguise them in, and ordinary texts.

Secrets are put together here, so that no scanner of repositories takes them for real ones.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import quote, quote_plus, unquote

ORDINARY = (Path(__file__).parent / "ordinary.txt").read_text(encoding="utf-8").splitlines()

_ALNUM = "4kQz8Tn2WmY6rB1cVx9LdP3sHf7JgKa5Ee0Uu4Zz8Xy2Wv6Tt"
_HEX = "9f8e7d6c5b4a39281706f5e4d3c2b1a09f8e7d6c5b4a39281706f5e4d3c2b1a0"
_AWS = "wJalrXUtnFEMI/K7MDENG/bPxRfiCY+AMPLEKEY1"
_AZURE = (
    "Zm9vYmFyL2JheitxdXV4MTIzNDU2Nzg5MGFiY2RlZmdoaWprbG1ub3BxcnN0dXZ3eHl6QUJDREVGR0hJSktMTU" + "=="
)
_JWT = "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiJhbmEifQ.h2KPlXItBvW3HTdfElJpME9gV5lIOOKiAQokWw7bZLi"
_PEM_BODY = "MIIEpAIBAAKCAQEA0Z3VS5JJcds3xfn/ygWyF8PbnGy0AHB7MhgwMbRvI0MBZhpI\nq9w/7X8cV6v2"

# kind: (a text, the part of it that must be gone)
PRIVATE: Mapping[str, tuple[str, str]] = {
    name: (text.replace("@@", secret), secret)
    for name, text, secret in [
        ("e-mail", "write to @@ please", "ana.torres@example.org"),
        ("e-mail with plus", "from @@", "ana+shop@mail.example.co"),
        ("phone", "call @@ now", "+49 30 23125 041"),
        ("phone, US", "my number is @@", "(202) 555-0187"),
        ("phone, GB", "ring @@ today", "020 7946 0123"),
        ("card", "card @@ thanks", "4111 1111 1111 1111"),
        ("card, one piece", "card @@ thanks", "5555555555554444"),
        ("card, dashes", "pay with @@", "4111-1111-1111-1111"),
        ("card, dots", "pay with @@", "4111.1111.1111.1111"),
        ("card, Amex", "amex @@", "3782 822463 10005"),
        ("card, Amex dots", "amex @@", "3782.822463.10005"),
        ("card, no-break spaces", "card @@", "4111\u00a01111\u00a01111\u00a01111"),
        ("card, narrow spaces", "card @@", "4111\u202f1111\u202f1111\u202f1111"),
        ("card, non-breaking hyphens", "card @@", "4111\u20111111\u20111111\u20111111"),
        ("card, full width", "card @@", "４１１１１１１１１１１１１１１１"),
        ("IBAN", "to @@ today", "DE89 3704 0044 0532 0130 00"),
        ("IBAN, lower case", "to @@ today", "de89370400440532013000"),
        ("IBAN, lower case, grouped", "iban @@", "gb82 west 1234 5698 7654 32"),
        (
            "IBAN, no-break spaces",
            "iban @@",
            "GB82\u00a0WEST\u00a01234\u00a05698\u00a07654\u00a032",
        ),
        ("IBAN, France", "iban @@", "fr1420041010050500013m02606"),
        ("SSN", "my SSN is @@", "536-22-8145"),
        ("SSN, alone", "@@", "536-22-8145"),
        ("SSN, one piece", "social security number: @@", "536228145"),
        ("SSN, spaces", "SSN @@", "536 22 8145"),
        ("SSN, no-break hyphens", "ssn=@@", "536\u201122\u20118145"),
        ("GitHub ghp", "use @@", "ghp_" + _ALNUM[:36]),
        ("GitHub gho", "use @@", "gho_" + _ALNUM[:36]),
        ("GitHub ghs", "use @@", "ghs_" + _ALNUM[:36]),
        ("GitHub ghu", "use @@", "ghu_" + _ALNUM[:36]),
        ("GitHub ghr", "use @@", "ghr_" + _ALNUM[:36]),
        ("GitHub fine-grained", "use @@", "github_pat_" + _ALNUM[:22] + "_" + _ALNUM),
        ("GitLab", "use @@", "glpat-" + _ALNUM[:20]),
        ("AWS key", "use @@", "AKIA" + "QDFALXNEIJC4BZ5V"),
        ("AWS temporary key", "use @@", "ASIA" + "SGJ7DMSDEKL4GBDF"),
        ("AWS secret", "aws_secret_access_key = @@", _AWS),
        ("AWS secret with a slash first", "AWS_SECRET_ACCESS_KEY=@@", "/" + _ALNUM[:39]),
        ("AWS secret in words", "the secret access key @@", _AWS),
        ("AWS pair", "AKIA" + "QDFALXNEIJC4BZ5V,@@", _AWS),
        ("Google", "use @@", "AIza" + _ALNUM[:35]),
        ("Google OAuth", "use @@", "ya29." + _ALNUM),
        ("Slack bot", "use @@", "xoxb-" + "594941826713-449091537110-" + _ALNUM[:24]),
        ("Slack user", "use @@", "xoxp-" + "11707907514-20003031686-" + _HEX[:32]),
        (
            "Slack webhook",
            "post to https://hooks.slack.com/services/@@",
            "T024BE7LD/B0DSE41HK/" + _ALNUM[:24],
        ),
        ("Discord webhook", "https://discord.com/api/webhooks/@@", "123456789012345678/" + _ALNUM),
        ("Stripe live", "use @@", "sk_" + "live_" + _ALNUM[:24]),
        ("Stripe restricted", "use @@", "rk_" + "live_" + _ALNUM[:24]),
        ("OpenAI", "use @@", "sk-" + _ALNUM[:48]),
        ("OpenAI project", "use @@", "sk-" + "proj-" + _ALNUM),
        ("Anthropic", "use @@", "sk-" + "ant-api03-" + _ALNUM),
        ("Hugging Face", "use @@", "hf_" + _ALNUM[:34]),
        ("npm", "use @@", "npm_" + _ALNUM[:36]),
        ("PyPI", "use @@", "pypi-" + "AgEIcHlwaS5vcmc" + _ALNUM),
        ("SendGrid", "use @@", "SG." + _ALNUM[:22] + "." + _ALNUM[:43]),
        ("Twilio", "use @@", "SK" + _HEX[:32]),
        ("Databricks", "use @@", "dapi" + _HEX[:32]),
        ("Vault", "use @@", "hvs." + _ALNUM[:24]),
        ("Telegram bot", "use @@", "123456789:" + "AA" + _ALNUM[:33]),
        (
            "Azure storage",
            "DefaultEndpointsProtocol=https;AccountName=x;AccountKey=@@;EndpointSuffix=core.windows.net",
            _AZURE,
        ),
        (
            "Azure service bus",
            "Endpoint=sb://x.servicebus.windows.net/;SharedAccessKeyName=r;SharedAccessKey=@@",
            _AZURE[:43] + "=",
        ),
        ("Azure key alone", "azure storage key: @@", _AZURE),
        (
            "Azure SAS",
            "https://x.blob.core.windows.net/c/f?sv=2022-11-02&sr=b&sig=@@",
            _ALNUM[:43] + "=",
        ),
        ("Azure client secret", "use @@", "abc8Q~" + _ALNUM[:34]),
        ("JWT", "token @@ sent", _JWT),
        (
            "private key",
            "-----BEGIN RSA PRIVATE KEY-----\n@@\n-----END RSA PRIVATE KEY-----",
            _PEM_BODY,
        ),
        ("private key, cut", "-----BEGIN PRIVATE KEY-----\n@@", _PEM_BODY),
        ("private key, without its start", "@@\n-----END EC PRIVATE KEY-----", _PEM_BODY),
        (
            "private key, OpenSSH",
            "-----BEGIN OPENSSH PRIVATE KEY-----\n@@\n-----END OPENSSH PRIVATE KEY-----",
            _PEM_BODY,
        ),
        ("password in a URL", "postgres://app:@@@db.example:5432/prod", "s3cr3t-Pass"),
        ("password in a URL with @", "https://ana:@@@git.example/x", "hunter@22"),
        ("redis password", "redis://:@@@cache.example:6379/0", "q9w8e7r6"),
        ("bearer", "Authorization: Bearer @@", _ALNUM[:32]),
        ("basic", "Authorization: Basic @@", "YW5hOndvbmRlcg=="),
        ("password=", "password=@@", "hunter22x"),
        ("password:", '{"password": "@@"}', "correcthorse9"),
        ("api_key:", "api_key: @@", "9f8e7d6c5b4a"),
        ("client_secret", "client_secret=@@", "Zm9vYmFyYmF6"),
        ("token in a query", "/cb?token=@@", "9hT4kQz8Tn2WmY6r"),
        ("password in XML", "<password>@@</password>", "s3cr3tXml9"),
    ]
}


def _as_unicode_escapes(text: str) -> str:
    return "".join(c if c.isalnum() and c.isascii() else f"\\u{ord(c):04x}" for c in text)


def _percent_all(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


# How a text is sent.
DISGUISES: Mapping[str, Callable[[str], str]] = {
    "plain": lambda text: text,
    "in a sentence": lambda text: f"The customer wrote: “{text}” and left.",
    "percent-encoded": lambda text: quote(text, safe=""),
    "percent-encoded, a URL": lambda text: f"https://app.example/b?q={quote(text, safe='')}&page=2",
    "percent-encoded, slashes kept": lambda text: f"https://app.example/x?r={quote(text)}",
    "percent-encoded twice": lambda text: f"/login?next={quote(quote(text, safe=''), safe='')}",
    "percent-encoded, lower case": lambda text: (
        "q=" + quote(text, safe="").lower() if text.islower() else "q=" + quote(text, safe="")
    ),
    "percent-encoded, every byte": lambda text: f"https://app.example/?q={_percent_all(text)}",
    "a form": lambda text: f"a=1&note={quote_plus(text)}&submit=Go",
    "a form, first": lambda text: f"note={quote_plus(text)}",
    "JSON": lambda text: json.dumps({"note": text}),
    "JSON, slashes escaped": lambda text: json.dumps({"n": text}).replace("/", "\\/"),
    "JSON in JSON": lambda text: json.dumps({"body": json.dumps({"note": text})}),
    "JSON in JSON in JSON": lambda text: json.dumps([json.dumps([json.dumps([text])])]),
    "JSON, unicode escapes": lambda text: f'{{"note":"{_as_unicode_escapes(text)}"}}',
    "JSON in a query": lambda text: "/t?d=" + quote(json.dumps({"note": text}), safe=""),
    "a query in JSON": lambda text: json.dumps({"url": f"https://x.example/?q={quote(text)}"}),
    "a line of its own in JSON": lambda text: json.dumps({"note": f"first\n{text}\nlast"}),
}

_LAYERS = 6
_ESCAPE = re.compile(r"\\+(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)


def letters(text: str) -> str:
    """Return the letters and digits of a text below all of its escapes, as a reader gets them."""
    for _ in range(_LAYERS):
        text = unquote(text)
        text = _ESCAPE.sub(lambda e: chr(int(e[1], 16)) if e[1] else " " * (e[2] in "nrt"), text)
    return "".join(filter(str.isalnum, text)).lower()
