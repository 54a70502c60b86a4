"""Which texts hold secrets: a labelled corpus, the checks behind the patterns, and properties."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel.errors import ConfigurationError
from evenkeel.privacy.account_numbers import is_card, is_iban, passes_luhn
from evenkeel.privacy.phone import PhoneCheck
from evenkeel.privacy.rules import Action, ValueRule
from evenkeel.privacy.text_redactor import MAX_ROUNDS, RedactionTally, TextRedactor, Tokens
from evenkeel_collector.redaction.field_rules import load_rules
from tests.fixtures.redaction_score import load_corpus, score

CORPUS = load_corpus(Path(__file__).parent / "corpus.jsonl")
RULES = load_rules()
NAMES = [rule.name for rule in RULES.keys] + [rule.name for rule in RULES.values]
TOKENS = Tokens(b"0123456789abcdef", NAMES)
REDACTOR = TextRedactor(RULES.values, TOKENS)
MIN_EXAMPLES = 8

SECRETS = {
    "api_key": "sk" + "-proj-4kQz8Tn2WmY6rB1cVx9LdP3s",
    "bearer": "Bearer 9hT4kQz8Tn2WmY6rB1cVx9LdP3s",
    "card": "4111 1111 1111 1111",
    "credential": 'password="correcthorse"',
    "email": "ana.torres@example.org",
    "iban": "DE89 3704 0044 0532 0130 00",
    "phone": "+49 30 23125 041",
    "url_credentials": "postgres://app:s3cr3t@db.example/x",
}
# What must be gone: the secret itself, without the words around it that stay.
KERNELS = {
    "bearer": "9hT4kQz8Tn2WmY6rB1cVx9LdP3s",
    "credential": "correcthorse",
    "url_credentials": "s3cr3t",
}


def redact(text: str) -> str:
    redacted = REDACTOR.redact(text.encode(), RedactionTally())
    assert redacted is not None
    return redacted.decode()


def test_every_rule_keeps_its_precision_and_recall_on_the_corpus() -> None:
    scores = score(REDACTOR, CORPUS)
    for rule, result in scores.items():
        print(f"{rule:16} precision {result.precision_ratio} recall {result.recall_ratio}")
    assert len(CORPUS) >= 300
    assert set(scores) == {rule.name for rule in RULES.values}
    for rule, result in scores.items():
        assert result.num_found >= MIN_EXAMPLES, rule
        assert result.precision_ratio is not None and result.precision_ratio >= 0.95, rule
        assert result.recall_ratio is not None and result.recall_ratio >= 0.95, rule


def test_the_corpus_redacted_twice_is_redacted_once() -> None:
    for example in CORPUS:
        once = REDACTOR.redact(example.text, RedactionTally())
        assert once is not None
        tally = RedactionTally()
        assert REDACTOR.redact(once, tally) == once
        assert not tally.counts


def test_a_short_text_is_searched_like_a_long_one() -> None:
    for example in CORPUS:
        short, long = (
            [
                (each.rule.name, each.start, min(each.end, len(example.text)))
                for each in REDACTOR.find(text, RedactionTally())
            ]
            for text in (example.text, example.text + b"\n" * 1024)
        )
        assert short == long


@pytest.mark.parametrize(
    ("digits", "is_one"),
    [
        ("4111111111111111", True),
        ("4111111111111112", False),  # Luhn
        ("378282246310005", True),
        ("37828224631000", False),  # length
        ("9111111111111119", False),  # no issuer
        ("2223003122003222", True),
        ("6759649826438453", True),
    ],
)
def test_a_card_needs_issuer_length_and_checksum(digits: str, is_one: bool) -> None:
    assert is_card(digits.encode()) is is_one


@given(st.text("0123456789", min_size=2, max_size=19), st.data())
def test_luhn_sees_every_single_wrong_digit(body: str, data: st.DataObject) -> None:
    check = next(d for d in "0123456789" if passes_luhn((body + d).encode()))
    number = body + check
    place = data.draw(st.integers(0, len(number) - 1))
    wrong = data.draw(st.sampled_from([d for d in "0123456789" if d != number[place]]))
    assert not passes_luhn((number[:place] + wrong + number[place + 1 :]).encode())


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("DE89370400440532013000", True),  # the SWIFT registry's example
        ("DE89370400440532013001", False),
        ("DE8937040044053201300", False),
        ("GB82WEST12345698765432", True),
        ("XX89370400440532013000", False),
    ],
)
def test_an_iban_needs_its_countrys_length_and_checksum(text: str, is_one: bool) -> None:
    assert is_iban(text.encode()) is is_one


def test_a_security_code_behind_a_card_stays_outside_the_token() -> None:
    assert redact("4111 1111 1111 1111 123").endswith("] 123")


@pytest.mark.parametrize(
    "text",
    [
        "room 12 020 7946 0123",
        "0\n+49 30 23125 041",
        "020 7946 0123 12:30",
        "AB12 DE89 3704 0044 0532 0130 00",
        "12 4111 1111 1111 1111",
    ],
)
def test_numbers_beside_a_secret_do_not_hide_it(text: str) -> None:
    assert "[" in redact(text)


def test_two_spellings_of_a_secret_get_one_token() -> None:
    assert redact("4111-1111-1111-1111") == redact("4111111111111111")
    assert redact("Ana@Example.org") == redact("ana@example.org")
    assert redact("ana@example.org") != redact("eva@example.org")


def test_without_a_key_a_hash_is_a_mask() -> None:
    masking = TextRedactor(RULES.values, Tokens(None, NAMES))
    assert masking.redact(b"ana@example.org", RedactionTally()) == b"[email]"


def test_what_looks_like_a_token_of_ours_is_left_but_not_what_stands_beside_it() -> None:
    text = "[email:0123456789ab] ana@example.org [phone]"
    redacted = redact(text)
    assert redacted.startswith("[email:0123456789ab] [email:")
    assert "ana@" not in redacted


def test_secrets_that_overlap_become_one_token_of_the_first_rule() -> None:
    assert redact("password=ana@example.org") == "password=[credential]"


def test_a_secret_laid_bare_by_a_replacement_is_found_in_the_same_pass() -> None:
    text = "password=aaaaaa1 x=" + "ana@example.org4111111111111111"
    once = redact(text)
    assert redact(once) == once


def test_a_text_made_to_need_endless_rounds_is_replaced_whole() -> None:
    chain = ValueRule(name="chain", pattern=r"\Aab", action=Action.MASK)
    redactor = TextRedactor([chain], Tokens(None, ["chain"]))
    tally = RedactionTally()
    assert redactor.redact(b"ab" * 50, tally) == b"[chain]"
    assert tally.counts["chain"] == MAX_ROUNDS + 1


def test_a_rule_that_drops_takes_the_whole_value_or_masks_where_it_cannot() -> None:
    rule = ValueRule(name="word", pattern="forbidden", action=Action.DROP)
    redactor = TextRedactor([rule], Tokens(b"k" * 16, ["word"]))
    assert redactor.redact(b"a forbidden thing", RedactionTally()) is None
    assert (
        redactor.redact(b"a forbidden thing", RedactionTally(), may_drop=False) == b"a [word] thing"
    )


def test_an_unknown_region_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="'UK' has no numbering plan"):
        PhoneCheck(["UK"])


# Letters and digits touching a secret make another word of it: it is planted between signs.
noise = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
apart = st.sampled_from([" ", "\n", "\t", " (", " «", "; "])


@pytest.mark.parametrize("around", ["{} 0A", "{} 2nd try", "A0 {}", "x1 {} 1a2b"])
def test_a_card_beside_a_word_with_digits_is_found(around: str) -> None:
    assert "1111" not in redact(around.format("4111 1111 1111 1111"))


@settings(max_examples=100, deadline=None)
@given(noise, apart, st.sampled_from(sorted(SECRETS)), st.sampled_from([" ", "\n", "\t"]), noise)
def test_a_planted_secret_never_stays(
    before: str, left: str, rule: str, right: str, after: str
) -> None:
    redacted = redact(before + left + SECRETS[rule] + right + after)
    assert KERNELS.get(rule, SECRETS[rule]) not in redacted


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(noise, st.sampled_from(sorted(SECRETS.values()))), max_size=6))
def test_redacting_any_text_twice_is_redacting_it_once(parts: list[str]) -> None:
    once = redact("".join(parts))
    tally = RedactionTally()
    assert REDACTOR.redact(once.encode(), tally) == once.encode()
    assert not tally.counts


@given(st.binary(max_size=80))
def test_bytes_that_are_no_text_are_taken_too(data: bytes) -> None:
    REDACTOR.redact(data + b" ana@example.org " + data, RedactionTally())


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(noise, st.sampled_from(sorted(SECRETS.values()))), max_size=4))
def test_what_is_found_is_seen_by_the_first_look(parts: list[str]) -> None:
    text = "".join(parts).encode()
    if REDACTOR.find(text, RedactionTally()):
        assert REDACTOR.may_match(b"\xff\x01" + text + b"\x02\xc3")
