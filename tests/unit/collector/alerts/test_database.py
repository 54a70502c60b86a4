"""Books of other versions, and that what they hold goes on."""

import json
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from evenkeel.audit import Audit
from evenkeel.errors import ConfigurationError, UnusableFileError
from evenkeel.slo.receiver import AlertGrouping, Receiver
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.alerts.engine import AlertEngine
from evenkeel_collector.alerts.evidence_requests import EvidenceBook
from evenkeel_collector.alerts.groups import Grouper
from evenkeel_collector.alerts.state import Condition, Delays, State
from evenkeel_collector.delivery.payloads import make_posting
from evenkeel_collector.slo.corrections import Corrections

S = 10**9
NOW = 1_795_168_800 * S
# Dumped by the last program of that version, in the midst of its work.
SCRIPT = Path(__file__).with_name("book_of_version_6.sql")
HOOK = Receiver("hook", "http://127.0.0.1:1/")
CALM = Receiver("calm", "http://127.0.0.1:1/")
TEAM = Receiver(
    "team [by slo]", "http://127.0.0.1:1/", base="team", group=AlertGrouping(("service",))
)
RECEIVERS = {receiver.name: receiver for receiver in (HOOK, CALM, TEAM)}
TTFT, LATE = "00000001" * 4, "00000004" * 4


@pytest.fixture
def old(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(tmp_path / "alerts.db", isolation_level=None)
    connection.executescript(SCRIPT.read_text(encoding="utf-8"))
    yield connection
    connection.close()


@pytest.fixture
def book(old: sqlite3.Connection, tmp_path: Path) -> Iterator[AlertBook]:
    book = AlertBook(tmp_path / "alerts.db")
    yield book
    book.close()


def test_what_an_old_book_owes_is_sent_as_it_would_have_been(
    old: sqlite3.Connection, tmp_path: Path
) -> None:
    rows = old.execute("SELECT number, body FROM outbox WHERE state = 'waiting'").fetchall()
    book = AlertBook(tmp_path / "alerts.db")
    sent = {}
    while due := book.due(2**62):
        for n in due:
            sent[n.number] = make_posting(RECEIVERS[n.receiver], n, NOW).body
            book.mark_delivered(n.number, NOW)
    book.close()
    assert sent == dict(rows)
    assert len(sent) == 9


def test_an_old_books_queue_keeps_its_order_ids_and_attempts(book: AlertBook) -> None:
    assert book.count_by_state() == {"waiting": 9, "delivered": 3, "dead": 1, "withdrawn": 1}
    by_number = {n.number: n for n in book.due(2**62)}
    failed = by_number[2]
    assert (failed.notification_id, failed.alert_id) == (f"{TTFT}-firing", TTFT)
    assert (failed.num_attempts, failed.last_error) == (1, "answered 503")
    assert by_number[6].is_repetition
    group = by_number[12]
    assert group.alert_id == "group33aea99272d1d017" == group.notification_id.partition("-")[0]
    assert group.group is not None
    assert group.group.labels == {"service": "übersetzer"}
    (ended,) = book.overdue("calm", 2**62)
    assert (ended.number, ended.status) == (4, "firing")
    (dead,) = book.dead()
    assert (dead.number, dead.last_error) == (14, "answered 404")
    assert book.replay(NOW) == 1


def test_an_old_books_alerts_go_on(book: AlertBook) -> None:
    engine = AlertEngine(book)
    states = {alert.slo: alert.life.state for alert in book.alerts()}
    firing = State.FIRING
    assert states == {"late": firing, "stall": firing, "ttft": firing, "tpot": State.RESOLVED}
    (over,) = engine.observe(
        [Condition("ttft", "page", False, Delays(), {}, {}, dict)], [HOOK, TEAM], NOW + 500 * S
    )
    assert (over.id, over.details.labels["slo"]) == (f"{TTFT}-resolved", "ttft")
    assert len(book.transitions(100)) == 6
    assert EvidenceBook(book).awaited() == {LATE: NOW + 80 * S}
    EvidenceBook(book).add(LATE, {"top_cause": "queue"}, NOW + 500 * S)
    (late,) = (n for n in book.due(2**62, receiver="hook") if n.alert_id == LATE)
    assert late.alerts[0].annotations["top_cause"] == "queue"


def test_an_old_books_groups_go_on(book: AlertBook) -> None:
    grouper = Grouper(book)
    assert grouper.num_pending() == 1
    (waiting,) = book.due(2**62, receiver=TEAM.name)
    book.mark_delivered(waiting.number, NOW + 420 * S)
    assert grouper.flush(RECEIVERS, NOW + 1000 * S) == 1
    (told,) = book.due(2**62, receiver=TEAM.name)
    message: dict[str, Any] = json.loads(make_posting(TEAM, told, NOW).body)
    assert [alert["labels"]["slo"] for alert in message["alerts"]] == ["ttft", "late", "stall"]
    assert message["groupLabels"] == {"service": "übersetzer"}


def test_what_operators_said_to_an_old_book_holds(book: AlertBook) -> None:
    (silence,) = book.silences(NOW)
    assert (silence.author, silence.comment) == ("ann", "load")
    assert silence.covers("any", {"severity": "ticket"})
    assert not silence.covers("any", {"severity": "none"})
    assert list(book.acknowledged().values()) == ["bob"]
    assert book.withheld() == {LATE}
    assert book.subjects() == ["late", "stall", "tpot", "ttft"]
    (correction,) = Corrections(book).all()
    assert (correction.author, correction.revoked_ns) == ("ann", None)


def test_a_silence_set_before_there_were_matchers_covers_its_slo(
    old: sqlite3.Connection, tmp_path: Path
) -> None:
    old.execute("INSERT INTO silences VALUES ('a', 's', ?, ?, 'why (ann)', '', '')", (NOW, NOW + 1))
    book = AlertBook(tmp_path / "alerts.db")
    (silence,) = (each for each in book.silences(NOW) if each.id == "a")
    book.close()
    assert (silence.slo, silence.comment) == ("s", "why (ann)")
    assert silence.covers("s", {}) and silence.covers("s gone", {"slo": "s"})
    assert not silence.covers("t", {"slo": "t"})


def layout(path: Path) -> dict[str, Any]:
    """Return the columns of each table, with their types, and its indexes."""
    connection = sqlite3.connect(path)
    found = {
        table: (
            sorted(row[1:3] for row in connection.execute(f"PRAGMA table_info({table})")),
            sorted(
                row[1]
                for row in connection.execute(f"PRAGMA index_list({table})")
                if "autoindex" not in row[1]
            ),
        )
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    }
    connection.close()
    return found


def test_an_upgraded_book_has_the_tables_of_a_new_one(book: AlertBook, tmp_path: Path) -> None:
    AlertBook(tmp_path / "new.db").close()
    assert layout(tmp_path / "alerts.db") == layout(tmp_path / "new.db")


def test_a_book_of_this_version_gets_the_indexes_that_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "alerts.db"
    AlertBook(path).close()
    made = layout(path)
    with sqlite3.connect(path) as connection:
        connection.execute("DROP INDEX transitions_of_alert")
    AlertBook(path).close()
    assert layout(path) == made
    plan = sqlite3.connect(path).execute(
        "EXPLAIN QUERY PLAN SELECT details FROM transitions WHERE alert_id = 'a'"
    )
    assert "USING INDEX transitions_of_alert" in str(plan.fetchall())


def test_receivers_that_fail_are_found_without_reading_all_that_was_delivered(
    book: AlertBook,
) -> None:
    """It is asked for twice in each evaluation, and the book holds 90 days."""
    asked = []
    event.listen(
        book.connection.engine,
        "before_cursor_execute",
        lambda connection, cursor, statement, values, *rest: asked.append((statement, values)),
    )
    assert book.failing(10**18, 10**9) == {}
    statement, values = asked[0]
    plan = book.connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values)
    steps = [row[3] for row in plan]
    assert {step for step in steps if "SCAN outbox" in step} == {
        "SCAN outbox USING INDEX outbox_queue",
        "SCAN outbox USING INDEX outbox_dead",
        "SCAN outbox USING INDEX outbox_accepted_in_part",
    }
    searches = [step for step in steps if "later" in step]
    assert len(searches) == 3
    assert all("INDEX outbox_accepted" in step and "ended_ns>?" in step for step in searches)


def test_an_upgrade_that_is_cut_off_changes_nothing(
    old: sqlite3.Connection, tmp_path: Path
) -> None:
    """The last row cannot be read, after all others were taken over."""
    before = old.execute("SELECT * FROM outbox").fetchall()
    (body,) = old.execute("SELECT body FROM group_members WHERE number = 5").fetchone()
    old.execute("UPDATE group_members SET body = '{' WHERE number = 5")
    with pytest.raises(ValueError, match="Expecting"):
        AlertBook(tmp_path / "alerts.db")
    assert old.execute("SELECT * FROM outbox").fetchall() == before
    assert old.execute("PRAGMA user_version").fetchone() == (6,)
    old.execute("UPDATE group_members SET body = ? WHERE number = 5", (body,))
    AlertBook(tmp_path / "alerts.db").close()


@pytest.mark.parametrize(
    ("version", "reason"), [(99, "version 99"), (5, "version 5, this program reads 6 to 7")]
)
def test_a_book_of_a_version_that_is_not_known_is_refused(
    old: sqlite3.Connection, tmp_path: Path, version: int, reason: str
) -> None:
    old.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(ConfigurationError, match=reason):
        AlertBook(tmp_path / "alerts.db")


@pytest.mark.parametrize("kind", [AlertBook, Audit])
def test_several_may_open_a_new_file_at_once(kind: type[Any], tmp_path: Path) -> None:
    """As the evaluator and the deliveries of a new collector do."""
    opened: list[Path] = []

    def open_one(path: Path, start: threading.Barrier) -> None:
        start.wait()
        kind(path).close()
        opened.append(path)

    for number in range(20):
        start = threading.Barrier(4)
        path = tmp_path / f"{number}.db"
        threads = [threading.Thread(target=open_one, args=(path, start)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(opened) == 80


@pytest.mark.parametrize("content", [b"garbage" * 1000, None], ids=["another file", "damaged"])
def test_a_damaged_book_says_what_to_do(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "alerts.db"
    if content is None:
        AlertBook(path).close()
        content = path.read_bytes()[:6000]
    path.write_bytes(content)
    with pytest.raises(UnusableFileError, match=r"move alerts\.db\* away.* silences") as caught:
        AlertBook(path)
    assert "sqlite3" not in str(caught.value)
