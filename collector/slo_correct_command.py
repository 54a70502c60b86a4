"""`evenkeel slo correct`: spans of time that do not count, with who and why."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from evenkeel.errors import ConfigurationError

if TYPE_CHECKING:
    from collector.slo_corrections import Correction, Corrections


def add_correct(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb."""
    correct = verbs.add_parser("correct", help="leave a span of time out of the budget")
    what = correct.add_mutually_exclusive_group(required=True)
    what.add_argument("--name", metavar="SLO", help="the SLO that is corrected")
    what.add_argument("--all", action="store_true", help="correct every SLO")
    what.add_argument("--list", action="store_true", help="show the corrections")
    what.add_argument("--revoke", metavar="ID", help="take a correction back")
    correct.add_argument("--from", dest="from_", metavar="TIME", help="such as 2026-11-20T10:00Z")
    correct.add_argument("--until", metavar="TIME", help="not included; whole minutes count")
    correct.add_argument("--reason", choices=("maintenance", "incident"), default="maintenance")
    correct.add_argument("--by", help="who says so")
    correct.add_argument("--comment", default="", help="why, for who reads the budget later")
    correct.add_argument(
        "--data-dir", type=Path, help="the collector's folder (also EVENKEEL_DATA_DIR)"
    )
    correct.add_argument("--json", action="store_true", help="print JSON")
    correct.set_defaults(run=_run_correct)


def book_path(data_dir: Path | None) -> Path:
    """Return where the collector of a folder keeps its alerts and corrections."""
    from collector.alert_book import FILE_NAME
    from collector.settings import CollectorSettings
    from evenkeel.settings import load

    return load(CollectorSettings, {"data_dir": data_dir}).settings.data_dir / FILE_NAME


def read_corrections(path: Path) -> tuple[Correction, ...]:
    """Return the corrections of a collector's folder; none where it is elsewhere."""
    from collector.alert_book import AlertBook
    from collector.slo_corrections import Corrections

    if not path.exists():
        return ()
    book = AlertBook(path, create=False)
    try:
        return Corrections(book).all()
    finally:
        book.close()


def _run_correct(args: argparse.Namespace) -> int:
    from collector.alert_book import AlertBook
    from collector.slo_corrections import Corrections

    book = AlertBook(book_path(args.data_dir), create=False)
    try:
        corrections = Corrections(book)
        if args.list:
            _list(corrections, args.json)
        elif args.revoke is not None:
            _revoke(corrections, args)
        else:
            if not args.all:
                book.check_subject(args.name)
            _add(corrections, args)
    finally:
        book.close()
    return 0


def _list(corrections: Corrections, as_json: bool) -> None:
    from collector.alert_message import rfc3339

    rows = [
        {
            "id": c.id,
            "slo": c.slo or None,
            "from": rfc3339(c.from_ns),
            "until": rfc3339(c.until_ns),
            "reason": c.reason,
            "by": c.author,
            "comment": c.comment,
            "created": rfc3339(c.created_ns),
            "revoked": None if c.revoked_ns is None else rfc3339(c.revoked_ns),
            "revoked_by": c.revoked_by,
        }
        for c in corrections.all()
    ]
    if as_json:
        print(json.dumps({"corrections": rows}))
        return
    for row in rows:
        taken_back = f" (revoked {row['revoked']} by {row['revoked_by']})" if row["revoked"] else ""
        print(
            f"{row['id']}  {row['slo'] or 'every SLO'}  {row['from']} to {row['until']}  "
            f"{row['reason']} by {row['by']}: {row['comment']}{taken_back}"
        )
    if not rows:
        print("no corrections")


def _revoke(corrections: Corrections, args: argparse.Namespace) -> None:
    from time import time_ns

    if not corrections.revoke(args.revoke, _author(args), time_ns()):
        raise ConfigurationError(f"no correction {args.revoke!r} is in force; see --list")
    print(f"correction {args.revoke} is revoked; the collector counts its events again")


def _add(corrections: Corrections, args: argparse.Namespace) -> None:
    from time import time_ns
    from uuid import uuid4

    from collector.alert_message import rfc3339
    from collector.slo_corrections import Correction, whole_minutes

    if args.from_ is None or args.until is None:
        raise ConfigurationError("a correction needs --from and --until")
    if not args.comment.strip():
        raise ConfigurationError("a correction needs a --comment that says why")
    from_ns, until_ns = whole_minutes(parse_time_ns(args.from_), parse_time_ns(args.until))
    if until_ns <= from_ns:
        raise ConfigurationError(f"--until {args.until} is not after --from {args.from_}")
    correction = Correction(
        uuid4().hex[:12],
        "" if args.all else args.name,
        from_ns,
        until_ns,
        args.reason,
        _author(args),
        args.comment,
        time_ns(),
    )
    corrections.add(correction)
    print(
        f"correction {correction.id}: {correction.slo or 'every SLO'} from {rfc3339(from_ns)} "
        f"until {rfc3339(until_ns)} does not count; the next evaluation works it out anew"
    )


def _author(args: argparse.Namespace) -> str:
    if not args.by:
        raise ConfigurationError("say who does this: --by NAME")
    return str(args.by)


def parse_time_ns(text: str) -> int:
    """Return a moment such as 2026-11-20T10:00Z in unix nanoseconds; without a zone it is UTC.

    Raises:
        ConfigurationError: If it is none.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(
            f"{text!r} is no time; expected one such as 2026-11-20T10:00Z"
        ) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(moment.timestamp()) * 10**9
