"""One set of rules finds every kind of secret, however it is sent, and leaves ordinary texts be."""

import json

import pytest

from evenkeel.privacy.text_redactor import RedactionTally, TextRedactor, Tokens
from evenkeel_collector.redaction.field_rules import load_rules
from evenkeel_evals.scorers.rules import pii, scrub, secret
from evenkeel_runtime.response_cache.private_text import PrivateText
from tests.unit.evenkeel.privacy.samples import DISGUISES, ORDINARY, PRIVATE, letters

MAX_CHANGED_ORDINARY = 1
RULES = load_rules()
COLLECTOR = TextRedactor(RULES.values, Tokens(None, [rule.name for rule in RULES.values]))
CACHE = PrivateText()
PII, SECRET = pii(None, {}), secret(None, {})


def redact(text: str) -> str:
    redacted = COLLECTOR.redact(text.encode(), RedactionTally(), may_drop=False)
    assert redacted is not None
    return redacted.decode()


@pytest.mark.parametrize("disguise", DISGUISES)
@pytest.mark.parametrize("kind", PRIVATE)
def test_a_secret_is_gone_however_it_is_sent(kind: str, disguise: str) -> None:
    text, private = PRIVATE[kind]
    sent = DISGUISES[disguise](text)
    assert letters(private) in letters(sent)
    assert letters(private) not in letters(redact(sent))


@pytest.mark.parametrize("disguise", [name for name in DISGUISES if "JSON" in name])
@pytest.mark.parametrize("kind", PRIVATE)
def test_json_stays_json(kind: str, disguise: str) -> None:
    sent = DISGUISES[disguise](PRIVATE[kind][0])
    if sent[0] in "{[":
        assert json.loads(redact(sent)) != json.loads(sent)


@pytest.mark.parametrize("kind", PRIVATE)
def test_cache_and_scorers_find_what_the_collector_removes(kind: str) -> None:
    text, private = PRIVATE[kind]
    assert CACHE.find_personal(text) is not None
    assert 0.0 in (PII.score(text).value, SECRET.score(text).value)
    assert letters(private) not in letters(scrub(text))


def test_ordinary_texts_are_left_as_they_are() -> None:
    assert len(ORDINARY) == len(set(ORDINARY)) == 200
    changed = [text for text in ORDINARY if redact(text) != text]
    assert len(changed) <= MAX_CHANGED_ORDINARY, changed


def test_the_address_of_a_repository_is_no_mail_address() -> None:
    for host in ("github.com", "gitlab.example.com", "bitbucket.org"):
        assert (
            redact(f"git clone git@{host}:team/repo.git") == f"git clone git@{host}:team/repo.git"
        )
    assert "someone" not in redact("write to someone@github.com: it is urgent")
