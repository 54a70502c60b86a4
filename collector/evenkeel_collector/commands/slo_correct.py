"""`evenkeel slo correct`: exclude a time range from a budget, with who did it and why."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from evenkeel.errors import ConfigurationError

if TYPE_CHECKING:
    from evenkeel_collector.slo.corrections import Correction


def add_correct(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the parser."""
    correct = verbs.add_parser("correct", help="exclude a time range from the error budget")
    what = correct.add_mutually_exclusive_group(required=True)
    what.add_argument("--name", metavar="SLO", help="the SLO to correct")
    what.add_argument("--all", action="store_true", help="correct every SLO")
    what.add_argument("--list", action="store_true", help="list the corrections")
    what.add_argument("--revoke", metavar="ID", help="revoke a correction")
    correct.add_argument(
        "--from",
        dest="from_",
        metavar="TIME",
        help="start, such as 2026-11-20T10:00Z (rounded to whole minutes)",
    )
    correct.add_argument(
        "--until", metavar="TIME", help="end, exclusive (rounded to whole minutes)"
    )
    correct.add_argument(
        "--reason", choices=("maintenance", "incident"), default="maintenance",
        help="why the range does not count (default maintenance)",
    )  # fmt: skip
    correct.add_argument("--by", help="who made the correction (default: your user name)")
    correct.add_argument("--comment", default="", help="why, for later readers of the budget")
    correct.add_argument(
        "--data-dir", type=Path, help="the collector's data folder (also EVENKEEL_DATA_DIR)"
    )
    correct.add_argument("--json", action="store_true", help="print JSON")
    correct.set_defaults(run=_run_correct)


def book_path(data_dir: Path | None) -> Path:
    """Return the path of the database in which a collector keeps alerts and corrections."""
    from evenkeel.settings import load
    from evenkeel_collector.alerts.book import FILE_NAME
    from evenkeel_collector.serve.settings import CollectorSettings

    return load(CollectorSettings, {"data_dir": data_dir}).settings.data_dir / FILE_NAME


def read_corrections(data_dir: Path | None) -> tuple[Correction, ...]:
    """Return the corrections in a collector's data folder.

    Args:
        data_dir: The folder; None: that of the settings, which has none if the collector runs
            elsewhere.

    Raises:
        ConfigurationError: If a folder is given that is no collector's.
    """
    from evenkeel_collector.alerts.book import AlertBook
    from evenkeel_collector.slo.corrections import Corrections

    path = book_path(data_dir)
    if data_dir is None and not path.exists():
        return ()
    with AlertBook(path, create=False) as book:
        return Corrections(book).all()


def _run_correct(args: argparse.Namespace) -> int:
    path = book_path(args.data_dir)
    if args.list:
        _list(path, args.json)
    elif args.revoke is not None:
        _revoke(path, args)
    else:
        _add(path, args)
    return 0


def _list(path: Path, as_json: bool) -> None:
    from evenkeel.times import rfc3339
    from evenkeel_collector.alerts.book import AlertBook
    from evenkeel_collector.slo.corrections import Corrections

    with AlertBook(path, create=False) as book:
        corrections = Corrections(book).all()
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
        for c in corrections
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


def _revoke(path: Path, args: argparse.Namespace) -> None:
    from time import time_ns

    from evenkeel.audit import user_name
    from evenkeel_collector.operators.actions import Revoke, perform_locally, read_model

    order = read_model(Revoke, {"by": args.by or user_name(), "id": args.revoke})
    perform_locally(path.parent, "revoke", order, time_ns())
    print(f"correction {args.revoke} is revoked; its events count again")


def _add(path: Path, args: argparse.Namespace) -> None:
    from time import time_ns

    from evenkeel.audit import user_name
    from evenkeel_collector.operators.actions import Correct, perform_locally, read_model

    if args.from_ is None or args.until is None:
        raise ConfigurationError("a correction needs --from and --until")
    if not args.all and not args.name:
        raise ConfigurationError("--name is empty; use --all for every SLO")
    if not args.comment.strip():
        raise ConfigurationError("a correction needs a --comment saying why")
    said = {"by": args.by or user_name(), "slo": "" if args.all else args.name}
    said |= {"begin": args.from_, "end": args.until}
    order = read_model(Correct, {**said, "reason": args.reason, "comment": args.comment})
    done = perform_locally(path.parent, "correct", order, time_ns())
    print(
        f"correction {done['id']}: {said['slo'] or 'every SLO'} from {done['from']} "
        f"until {done['until']} is excluded, starting with the next evaluation"
    )
