"""Actions of the operators' API on a real alert book, and the audit that they leave."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from evenkeel.audit import Audit, AuditEntry
from evenkeel.errors import ConfigurationError, UnusableFileError
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.alerts.engine import AlertEngine
from evenkeel_collector.alerts.silence import Silence
from evenkeel_collector.alerts.state import Condition, Delays
from evenkeel_collector.operators.actions import ACTIONS, perform
from evenkeel_collector.slo.corrections import Corrections
from tests.fixtures.file_limit import files_of_at_most

NOW_NS = 1_800_000_000 * 10**9


@pytest.fixture
def path(tmp_path: Path) -> Path:
    book = AlertBook(tmp_path / "alerts.db")
    book.set_subjects(["s"])
    book.close()
    return tmp_path / "alerts.db"


def do(path: Path, name: str, **fields: Any) -> dict[str, Any]:
    return perform(path, name, ACTIONS[name][0].model_validate({"by": "ann", **fields}), NOW_NS)


def test_a_silence_holds_until_it_is_ended(path: Path) -> None:
    made = do(path, "silence", slo="s", duration="2h", comment="load test")
    book = AlertBook(path)
    assert [(s.comment, s.author) for s in book.silences(NOW_NS)] == [("load test", "ann")]
    do(path, "end-silence", id=made["id"])
    assert book.silences(NOW_NS) == []
    book.close()
    with pytest.raises(ConfigurationError, match="no silence"):
        do(path, "end-silence", id=made["id"])


def test_a_silence_by_labels_holds_from_one_moment_to_another(path: Path) -> None:
    texts = ['severity=~"page|ticket"', "tenant!=acme"]
    begin, end = "2027-01-15T10:00:00Z", "2027-01-15T12:00:00Z"
    made = do(path, "silence", matchers=texts, begin=begin, end=end, comment="switch")
    assert made["matchers"] == ['severity=~"page|ticket"', 'tenant!="acme"']
    book = AlertBook(path)
    assert book.silences(NOW_NS) == []
    (silence,) = book.silences_until(NOW_NS)
    assert book.silences(silence.from_ns) == [silence]
    assert book.silences(silence.until_ns) == []
    assert silence.covers("s", {"severity": "page"})
    assert not silence.covers("s", {"severity": "page", "tenant": "acme"})
    do(path, "end-silence", id=made["id"])
    assert book.silences_until(NOW_NS) == []
    book.close()


@pytest.mark.parametrize("letter", ["x", "\\", '"', "ü"])
def test_the_longest_silence_that_is_taken_can_be_read_again(path: Path, letter: str) -> None:
    """One that cannot be read ends every evaluation, and nobody hears of any alert."""
    value = letter * (950 if letter in "xü" else 490)
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    made = do(path, "silence", matchers=[f'label{i}="{quoted}"' for i in range(20)])
    book = AlertBook(path)
    (silence,) = book.silences(NOW_NS)
    book.close()
    assert [matcher.value for matcher in silence.matchers] == [value] * 20
    assert made["matchers"] == [str(matcher) for matcher in silence.matchers]


def test_an_acknowledgement_of_a_mistyped_name_names_what_fires(path: Path) -> None:
    book = AlertBook(path)
    labels = {"slo": "chat-ttft", "severity": "page"}
    burning = Condition("chat-ttft", "page", True, Delays(), labels, {}, dict)
    AlertEngine(book).observe([burning], (), NOW_NS)
    book.close()
    with pytest.raises(ConfigurationError, match="is firing; did you mean 'chat-ttft'"):
        do(path, "acknowledge", slo="chat-tfft")


def test_silences_are_bounded_in_number(path: Path) -> None:
    book = AlertBook(path)
    for number in range(1_000):
        book.add_silence(Silence(str(number), "s", NOW_NS, NOW_NS + 1, ""), NOW_NS)
    book.close()
    with pytest.raises(ConfigurationError, match="1000 silences"):
        do(path, "silence", slo="s")


def test_a_correction_is_widened_to_minutes_and_revoked(path: Path) -> None:
    made = do(path, "correct", slo="s", begin="2026-01-01T00:00:30Z", end="2026-01-01T00:01:30Z",
              comment="switch")  # fmt: skip
    book = AlertBook(path)
    found = Corrections(book).all()
    assert (found[0].until_ns - found[0].from_ns) == 120 * 10**9
    do(path, "revoke", id=made["id"])
    assert Corrections(book).all()[0].revoked_by == "ann"
    book.close()


@pytest.mark.parametrize(
    ("name", "fields", "reason"),
    [
        ("acknowledge", {"slo": "s"}, "no alert of 's' is firing"),
        ("silence", {"slo": "s", "duration": "31d"}, "up to 30d"),
        ("silence", {}, "slo or matchers"),
        ("silence", {"slo": "s", "matchers": ["a=b"]}, "slo or matchers"),
        ("silence", {"matchers": ['slo="t"', "a=b"]}, "no SLO or rule is named 't'"),
        ("silence", {"matchers": ['a=~".*"']}, "at least one matcher"),
        ("silence", {"matchers": ["a=~("]}, "not a valid RE2 pattern"),
        ("silence", {"matchers": ["a"]}, "expected such as"),
        ("silence", {"slo": "s", "duration": "1h", "end": "2027-01-16T00:00:00Z"}, "not both"),
        ("silence", {"slo": "s", "end": "2026-01-01T00:00:00Z"}, "ends after now"),
        ("silence", {"slo": "s", "begin": "2029-01-01T00:00:00Z"}, "within a year"),
        ("silence", {"slo": "t"}, "no SLO or rule is named 't'; there are s"),
        (
            "correct",
            {"slo": "t", "begin": "2026-01-01", "end": "2026-01-02", "comment": "x"},
            "no SLO or rule is named 't'",
        ),
        ("replay", {"number": 7}, "no dead letter"),
        ("revoke", {"id": "x"}, "no correction"),
        ("correct", {"begin": "2026-01-02", "end": "2026-01-01", "comment": "x"}, "not after"),
        ("correct", {"begin": "soon", "end": "later", "comment": "x"}, "is not a time"),
    ],
)
def test_what_makes_no_sense_is_refused(
    path: Path, name: str, fields: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        do(path, name, **fields)


@pytest.mark.parametrize("name", ACTIONS)
def test_nobody_acts_without_a_name_or_with_unknown_words(name: str) -> None:
    with pytest.raises(ValidationError):
        ACTIONS[name][0].model_validate({"by": ""})
    with pytest.raises(ValidationError, match="extra"):
        ACTIONS[name][0].model_validate({"by": "ann", "sudo": True})


def test_the_audit_keeps_every_line_newest_first(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "audit.db")
    for i in range(3):
        audit.add(AuditEntry(i, "ann", "abc", "silence", {"slo": f"s{i}"}))
    audit.close()
    again = Audit(tmp_path / "audit.db")
    assert [e.details["slo"] for e in again.newest(2)] == ["s2", "s1"]
    again.close()


def test_on_a_full_disk_an_action_is_not_the_callers_mistake(path: Path) -> None:
    with files_of_at_most(64 << 10), pytest.raises(UnusableFileError, match=r"alerts\.db cannot"):
        for _ in range(40):
            do(path, "silence", slo="s", comment="x" * 2000)
