"""Matchers are written and mean what they do in Alertmanager."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.errors import ConfigurationError
from evenkeel.slo.matchers import (
    Matcher,
    Operator,
    all_match,
    check_selective,
    matchers_text,
    parse_matchers,
)

LABELS = {"slo": "ttft", "severity": "page", "tenant": "a b"}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("slo=ttft", True),
        ('slo="ttft"', True),
        (' slo = "ttft" ', True),
        ("slo!=ttft", False),
        ('severity=~"page|ticket"', True),
        ("severity=~pag", False),
        ('severity!~"pag"', True),
        ('severity!~"p.*"', False),
        ('team=""', True),
        ('team!=""', False),
        ('team=~".*"', True),
        ('team!~".+"', True),
        ('{slo="ttft", severity=~"page|ticket"}', True),
        ('{slo="ttft",severity="ticket",}', False),
        ("tenant=a b", True),
        ('slo=~"[a-z]{2,4}"', True),
        ('slo=~"t\\\\w+"', True),
        ('slo=~"t\\w+"', True),
        ('"slo"="ttft"', True),
    ],
)
def test_a_matcher_means_what_alertmanagers_does(text: str, matches: bool) -> None:
    assert all_match(parse_matchers(text), LABELS) is matches


@pytest.mark.parametrize(
    "text",
    ["", "slo", "=x", "{}", '{slo="a"', 'slo="a', 'slo="a" x', "slo=~(", 'slo="a",,b="c"', "a b=c"],
)
def test_what_is_no_matcher_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse_matchers(text)
    assert "\n" not in str(raised.value)


def test_matchers_are_bounded() -> None:
    assert len(parse_matchers(["a=b"] * 20)) == 20
    with pytest.raises(ConfigurationError, match="more than 20"):
        parse_matchers(["a=b"] * 21)
    with pytest.raises(ConfigurationError, match="1000 characters"):
        parse_matchers("a=" + "b" * 1001)


@pytest.mark.parametrize("text", ['a=""', 'a=~".*"', 'a!="b"', 'a!~"b"'])
def test_matchers_of_everything_are_not_selective(text: str) -> None:
    with pytest.raises(ConfigurationError, match="at least one"):
        check_selective(parse_matchers(text))


WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@given(WORDS.filter(lambda name: bool(name) and "\n" not in name), st.sampled_from(["=", "!="]),
       WORDS)  # fmt: skip
def test_the_text_form_is_read_back(name: str, operator: str, value: str) -> None:
    matcher = Matcher(name, Operator(operator), value)
    assert parse_matchers(matchers_text([matcher, matcher])) == (matcher, matcher)
