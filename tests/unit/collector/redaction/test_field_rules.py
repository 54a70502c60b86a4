"""The rules file: what it lays over, and what it refuses with one clear line."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.errors import ConfigurationError
from evenkeel.privacy.rules import Action, compile_bytes, without_anchors
from evenkeel_collector.redaction.field_rules import glob_to_pattern, load_rules


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "rules.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_addresses_of_machines_are_not_looked_for_unless_asked(tmp_path: Path) -> None:
    assert not {"ipv4", "ipv6"} & {rule.name for rule in load_rules().values}
    path = write(tmp_path, "[value.ipv4]\nenabled = true\n[value.email]\nenabled = false\n")
    names = {rule.name for rule in load_rules(path).values}
    assert "ipv4" in names
    assert "email" not in names


def test_a_file_changes_adds_and_extends(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        '[key.cookie]\naction = "drop"\n'
        "[value.employee]\npattern = 'E-[0-9]{6}'\naction = 'mask'\n"
        "[content]\nnames = ['my.prompt*']\n",
    )
    rules = load_rules(path)
    assert {rule.name: rule.action for rule in rules.keys}["cookie"] is Action.DROP
    assert rules.values[-1].name == "employee"
    assert "my.prompt*" in rules.content.names
    assert "input.value" in rules.content.names


REFUSED = {
    "a file that is not there": (None, "cannot be read"),
    "no TOML": ("[value", "is not TOML"),
    "an unknown section": ("[values.x]\n", r"\[values\] is unknown"),
    "an unknown field": ("[key.x]\nnames = ['abc']\naction = 'mask'\nkind = 1\n", "kind"),
    "an unknown action": ("[key.cookie]\naction = 'burn'\n", "action"),
    "an unknown check": ("[value.email]\ncheck = 'nose'\n", "no such check"),
    "a pattern RE2 does not take": ("[value.email]\npattern = '(?=x)y'\n", "RE2"),
    "a pattern of more than ASCII": ("[value.email]\npattern = 'é'\n", "ASCII"),
    "a pattern that matches everywhere": ("[value.email]\npattern = 'x*'\n", "empty string"),
    "an anchor and nothing more": ("[value.email]\npattern = '^'\n", "empty string"),
    "a name that is all names": ("[key.all]\nnames = ['*']\naction = 'mask'\n", "characters"),
    "one name for two rules": ("[key.email]\nnames = ['abc']\naction = 'mask'\n", "two rules"),
    "a new rule that lacks its pattern": ("[value.new]\naction = 'mask'\n", "pattern"),
    "a value where a table belongs": ("[key]\ncookie = 1\n", "not a table"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_wrong_is_said_in_one_line(case: str, tmp_path: Path) -> None:
    text, expected = REFUSED[case]
    path = tmp_path / "none.toml" if text is None else write(tmp_path, text)
    with pytest.raises(ConfigurationError, match=expected) as caught:
        load_rules(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r"\bab\b", "(?:)ab(?:)"),
        (r"^a$", "(?:)a(?:)"),
        (r"[^a$]\$", r"[^a$]\$"),
        (r"[]^$]x", r"[]^$]x"),
        (r"[^]^$]x\z", r"[^]^$]x(?:)"),
        (r"\Aab\\b", r"(?:)ab\\b"),
    ],
)
def test_anchors_are_removed_and_nothing_else(pattern: str, expected: str) -> None:
    assert without_anchors(pattern) == expected


@pytest.mark.parametrize("rule", load_rules().values, ids=lambda rule: rule.name)
def test_rules_without_their_anchors_still_compile(rule: object) -> None:
    compile_bytes(without_anchors(rule.pattern))  # type: ignore[attr-defined]


@given(st.text("ab_*.-+(", min_size=1, max_size=8))
def test_a_glob_matches_itself_without_its_stars(glob: str) -> None:
    assert re.fullmatch(glob_to_pattern(glob), glob.replace("*", ""), re.DOTALL)
