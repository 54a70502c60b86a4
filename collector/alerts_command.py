"""`evenkeel alerts`: what fires, what was told to whom, silences, dead letters, a test."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from evenkeel.cli import Command
from evenkeel.errors import ConfigurationError

_EXAMPLES = """\
examples:
  evenkeel alerts list
  evenkeel alerts silence slo=support-ttft --for 1h --comment 'load test'
  evenkeel alerts ack support-ttft --by ann
  evenkeel alerts test --slos slos.yaml
  evenkeel alerts replay
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)

    listing = verbs.add_parser("list", help="show alerts, recent changes, silences, dead letters")
    _add_data_dir(listing)
    listing.add_argument("--limit", type=int, default=20, help="recent changes to show")
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.set_defaults(run=_run_list)

    silence = verbs.add_parser("silence", help="keep an SLO's alerts from the receivers")
    silence.add_argument("matcher", nargs="?", metavar="slo=NAME", help="which alerts")
    silence.add_argument("--for", dest="duration", default="1h", help="default %(default)s")
    silence.add_argument("--comment", default="", help="why, for the others")
    silence.add_argument("--end", metavar="ID", help="end this silence instead")
    _add_data_dir(silence)
    silence.set_defaults(run=_run_silence)

    ack = verbs.add_parser("ack", help="take an alert on: it is not repeated to anybody")
    ack.add_argument("slo", metavar="SLO", help="whose firing alerts")
    ack.add_argument("--by", required=True, help="who takes it on")
    ack.add_argument("--comment", default="", help="what is being done")
    _add_data_dir(ack)
    ack.set_defaults(run=_run_ack)

    replay = verbs.add_parser("replay", help="deliver dead letters again, under their ids")
    replay.add_argument("--number", type=int, help="only this one, as `alerts list` numbers it")
    _add_data_dir(replay)
    replay.set_defaults(run=_run_replay)

    test = verbs.add_parser("test", help="send a test notification to every receiver")
    test.add_argument("--slos", type=Path, required=True, metavar="FILE", help="the SLO file")
    test.add_argument("--receiver", help="only this one")
    test.add_argument("--json", action="store_true", help="print JSON")
    test.set_defaults(run=_run_test)


def _add_data_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data-dir", type=Path, help="the collector's folder (also EVENKEEL_DATA_DIR)"
    )


def _book_path(args: argparse.Namespace) -> Path:
    from collector.alert_book import FILE_NAME
    from collector.settings import CollectorSettings
    from evenkeel.settings import load

    settings = load(CollectorSettings, {"data_dir": args.data_dir}).settings
    return settings.data_dir / FILE_NAME


def _run_list(args: argparse.Namespace) -> int:
    from time import time_ns

    from collector.alerts_text import listing_json, listing_text, read_listing

    if args.limit < 0:
        raise ConfigurationError(f"--limit is {args.limit}, expected at least 0")
    listing = read_listing(_book_path(args), args.limit, time_ns())
    print(json.dumps(listing_json(listing)) if args.json else listing_text(listing))
    return 0


def _run_silence(args: argparse.Namespace) -> int:
    from time import time_ns
    from uuid import uuid4

    from collector.alert_book import AlertBook, Silence
    from collector.alert_message import rfc3339
    from evenkeel.durations import parse_duration_s

    if (args.matcher is None) == (args.end is None):
        raise ConfigurationError("give slo=NAME to silence, or --end ID to end a silence")
    book = AlertBook(_book_path(args), create=False)
    try:
        now_ns = time_ns()
        if args.end is not None:
            if not book.end_silence(args.end, now_ns):
                raise ConfigurationError(f"no silence {args.end!r} is in force")
            print(f"silence {args.end} ended")
            return 0
        key, _, name = args.matcher.partition("=")
        if key != "slo" or not name:
            raise ConfigurationError(f"matcher is {args.matcher!r}, expected slo=NAME")
        book.check_subject(name)
        try:
            duration_s = parse_duration_s(args.duration)
        except ConfigurationError as error:
            raise ConfigurationError(f"--for: {error}") from error
        silence = Silence(
            uuid4().hex[:12], name, now_ns, now_ns + int(duration_s * 10**9), args.comment
        )
        book.add_silence(silence)
        print(f"silence {silence.id}: slo={name} until {rfc3339(silence.until_ns)}")
    finally:
        book.close()
    return 0


def _run_ack(args: argparse.Namespace) -> int:
    from time import time_ns

    from collector.alert_book import AlertBook
    from collector.alert_state import State

    book = AlertBook(_book_path(args), create=False)
    try:
        firing = [
            alert
            for alert in book.alerts()
            if alert.life.state is State.FIRING
            and args.slo in (alert.slo, alert.details.labels.get("slo"))
        ]
        if not firing:
            raise ConfigurationError(f"no alert of {args.slo!r} is firing")
        for alert in firing:
            book.acknowledge(alert.alert_id, args.by, args.comment, time_ns())
            print(f"{alert.slo} {alert.severity}: taken on by {args.by}")
    finally:
        book.close()
    return 0


def _run_replay(args: argparse.Namespace) -> int:
    from time import time_ns

    from collector.alert_book import AlertBook
    from collector.alert_outbox import Outbox

    book = AlertBook(_book_path(args), create=False)
    try:
        outbox = Outbox(book)
        num_replayed = outbox.replay(time_ns(), args.number)
        dead = outbox.dead()
    finally:
        book.close()
    if args.number is not None and not num_replayed:
        if any(letter.number == args.number for letter in dead):
            raise ConfigurationError(
                f"dead letter {args.number} was overtaken: its receiver has heard what came after"
            )
        raise ConfigurationError(f"no dead letter has number {args.number}")
    print(f"{num_replayed} dead letters are due again; the running collector delivers them")
    if args.number is None and dead:
        print(f"{len(dead)} were overtaken: their receivers have heard what came after; they stay")
    return 0


def _run_test(args: argparse.Namespace) -> int:
    import asyncio

    from collector.alert_trial import Attempt, send_test
    from evenkeel.slo_file import read_slo_file

    file = read_slo_file(args.slos)
    receivers = [r for r in file.receivers if args.receiver in (None, r.name)]
    if not receivers:
        missing = "no receivers" if args.receiver is None else f"no receiver {args.receiver!r}"
        raise ConfigurationError(f"{args.slos} has {missing}: nothing to test")
    attempts: list[Attempt] = asyncio.run(send_test(receivers))
    if args.json:
        print(
            json.dumps(
                [
                    {"receiver": a.receiver, "delivered": a.is_delivered, "error": a.error or None}
                    for a in attempts
                ]
            )
        )
    else:
        for attempt in attempts:
            print(f"{attempt.receiver}: {'delivered' if attempt.is_delivered else attempt.error}")
    return 0 if all(attempt.is_delivered for attempt in attempts) else 3


ALERTS = Command(
    name="alerts",
    summary="list alerts, silence them, replay dead letters, test receivers",
    configure=_configure,
    extra="collector",
    keeps_private=True,
)
