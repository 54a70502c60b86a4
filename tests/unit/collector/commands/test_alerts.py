"""`evenkeel alerts` on a collector's folder."""

import json
import time
from pathlib import Path

import pytest

from evenkeel.audit import Audit, user_name
from evenkeel.cli import main
from evenkeel_collector.alerts.book import FILE_NAME, AlertBook
from evenkeel_collector.alerts.notification import Notification, NotifiedAlert
from evenkeel_collector.commands.alerts import ALERTS
from evenkeel_collector.commands.slo import SLO

NOW = 1_795_168_800 * 10**9


def run(folder: Path, *arguments: str) -> int:
    return main(["alerts", *arguments, "--data-dir", str(folder)], [ALERTS])


def dead_letters(folder: Path, *states: str) -> list[int]:
    """Write one notification a state about one alert, firing and resolved in turn."""
    book = AlertBook(folder / FILE_NAME)
    outbox = book
    for index, state in enumerate(states):
        status = ("firing", "resolved")[index % 2]
        alert = NotifiedAlert({}, {}, 0, None if status == "firing" else NOW)
        alert_id = f"a{index // 2}"
        notification = Notification(f"{alert_id}-{status}", "on-call", alert_id, "f", (alert,))
        book.write_notifications([notification], NOW)
        if state == "dead":
            outbox.mark_dead(index + 1, "answered 404", NOW)
        else:
            outbox.mark_delivered(index + 1, NOW)
    numbers = [notification.number for notification in outbox.dead()]
    book.close()
    return numbers


def test_a_silence_of_what_is_not_there_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book = AlertBook(tmp_path / FILE_NAME)
    book.set_subjects(["chat-ttft", "slow-tail"])
    assert run(tmp_path, "silence", "slo=nope") == 2
    said = capsys.readouterr().err
    assert "no SLO or rule is named 'nope'; there are chat-ttft, slow-tail" in said
    assert run(tmp_path, "silence", "slo=slow-tail", "--for", "5m") == 0
    assert [silence.slo for silence in book.silences(time.time_ns())] == ["slow-tail"]
    book.set_subjects([])
    assert run(tmp_path, "silence", "slo=slow-tail") == 2
    assert "the collector evaluates none" in capsys.readouterr().err
    book.close()


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--for", "1h", "--until", "2100-01-01"], "give either --for or --until, not both"),
        (["--for", "60d"], "a silence lasts up to 30d, not 60d"),
        (["--until", "2020-01-01"],
         "a silence ends after now and up to 30d after it begins, not at 2020-01-01"),
        (["--from", "2100-01-01"], "a silence begins within a year, not at 2100-01-01"),
    ],
)  # fmt: skip
def test_a_silence_of_another_length_is_refused_in_the_words_of_the_flags(
    flags: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book = AlertBook(tmp_path / FILE_NAME)
    book.set_subjects(["chat"])
    assert run(tmp_path, "silence", "slo=chat", *flags) == 2
    assert capsys.readouterr().err == f"evenkeel: {line}\n"
    book.close()


def test_a_mistyped_receiver_is_answered_with_the_one_meant(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slos = tmp_path / "slos.yaml"
    slos.write_text(
        "apiVersion: evenkeel/v1\nkind: Alerting\nspec:\n  receivers:\n"
        "    - {name: on-call, url: 'https://alerts.example.com/hook'}\n"
    )
    assert main(["alerts", "test", "--slos", str(slos), "--receiver", "oncall"], [ALERTS]) == 2
    said = capsys.readouterr().err
    assert said == f"evenkeel: {slos} has no receiver 'oncall'; did you mean 'on-call'?\n"


def test_a_silence_by_labels_is_listed_ended_and_written_down(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    AlertBook(tmp_path / FILE_NAME).close()
    matchers = ['severity=~"page|ticket"', "tenant!=acme"]
    said = [*matchers, "--by", "ann", "--comment", "load test", "--for", "2h"]
    assert run(tmp_path, "silence", *said) == 0
    assert capsys.readouterr().out.startswith("silence ")
    assert run(tmp_path, "list", "--json") == 0
    (listed,) = json.loads(capsys.readouterr().out)["silences"]
    assert listed["matchers"] == ['severity=~"page|ticket"', 'tenant!="acme"']
    assert (listed["by"], listed["comment"], listed["is_in_force"]) == ("ann", "load test", True)
    assert run(tmp_path, "silence", "--end", listed["id"], "--by", "bob") == 0
    assert run(tmp_path, "silence", "--end", listed["id"], "--by", "bob") == 2
    audit = Audit(tmp_path / "audit.db")
    assert [(e.author, e.action) for e in audit.newest(9)] == [
        ("bob", "end-silence"),
        ("ann", "silence"),
    ]
    audit.close()


def test_a_silence_elsewhere_leaves_no_file(tmp_path: Path) -> None:
    assert run(tmp_path, "silence", "slo=x") == 2
    assert list(tmp_path.iterdir()) == []


def test_a_correction_of_what_is_not_there_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book = AlertBook(tmp_path / FILE_NAME)
    book.set_subjects(["chat-ttft"])
    span = ["--from", "2026-11-20T10:00Z", "--until", "2026-11-20T10:30Z", "--by", "ann"]
    command = ["slo", "correct", *span, "--comment", "x", "--data-dir", str(tmp_path), "--reason"]
    assert main([*command, "incident", "--name", "nope"], [SLO]) == 2
    assert "no SLO or rule is named 'nope'; there are chat-ttft" in capsys.readouterr().err
    assert main([*command, "incident", "--name", ""], [SLO]) == 2
    assert main([*command, "incident", "--name", "chat-ttft"], [SLO]) == 0
    book.close()


def test_a_correction_and_its_end_are_written_down_as_by_the_api(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book = AlertBook(tmp_path / FILE_NAME)
    book.set_subjects(["chat-ttft"])
    book.close()
    here = ("slo", "correct", "--data-dir", str(tmp_path))
    said = ("--name", "chat-ttft", "--from", "2026-11-20T10:00Z", "--until", "2026-11-20T10:30Z")
    assert main([*here, *said, "--comment", "switch"], [SLO]) == 0
    out = capsys.readouterr().out
    assert "from 2026-11-20T10:00:00" in out
    number = out.split()[1].rstrip(":")
    assert main([*here, "--revoke", number, "--by", "bob"], [SLO]) == 0
    assert main([*here, "--revoke", number, "--by", "bob"], [SLO]) == 2
    audit = Audit(tmp_path / "audit.db")
    revoked, corrected = audit.newest(9)
    audit.close()
    assert (revoked.author, revoked.action) == ("bob", "revoke")
    assert (corrected.author, corrected.action, corrected.token) == (user_name(), "correct", "")
    order = {"slo": "chat-ttft", "begin": "2026-11-20T10:00Z", "end": "2026-11-20T10:30Z"}
    assert {key: corrected.details[key] for key in order} == order
    assert corrected.details["result"]["id"] == number


def test_replay_makes_dead_letters_due_in_their_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dead_letters(tmp_path, "delivered", "dead", "dead") == [2, 3]
    assert run(tmp_path, "replay") == 0
    assert "2 dead letters queued" in capsys.readouterr().out
    book = AlertBook(tmp_path / FILE_NAME)
    (first,) = book.due(2**62)
    assert (first.notification_id, first.num_attempts) == ("a0-resolved", 0)
    book.close()


def test_replay_never_tells_of_a_firing_after_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dead_letters(tmp_path, "dead", "delivered", "dead") == [1, 3]
    assert run(tmp_path, "replay", "--number", "1") == 2
    assert "dead letter 1 is superseded" in capsys.readouterr().err
    assert run(tmp_path, "replay") == 0
    said = capsys.readouterr().out
    assert "1 dead letters queued" in said
    assert "1 kept: their receivers" in said
    assert run(tmp_path, "replay", "--number", "9") == 2
    assert "no dead letter with number 9" in capsys.readouterr().err
