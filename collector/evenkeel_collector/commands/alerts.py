"""`evenkeel alerts`: list, silence and acknowledge alerts; replay dead letters; test receivers."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from evenkeel.cli import Command
from evenkeel.errors import ConfigurationError
from evenkeel.known_names import suggestion

_EXAMPLES = """\
examples:
  evenkeel alerts list
  evenkeel alerts silence slo=support-ttft --for 1h --comment 'load test'
  evenkeel alerts silence 'severity=~"page|ticket"' tenant=acme --by ann
  evenkeel alerts silence --end 3f9a1c22b7d0
  evenkeel alerts ack support-ttft --by ann
  evenkeel alerts test --slos slos.yaml
  evenkeel alerts replay

They read and write the collector's data folder, so run them on its host. From anywhere
else, use the dashboard's Alerts page.
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)

    listing = verbs.add_parser(
        "list", help="show alerts, recent changes, silences and dead letters"
    )
    _add_data_dir(listing)
    listing.add_argument(
        "--limit",
        type=int,
        default=20,
        help="number of recent changes to show (default %(default)s)",
    )
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.set_defaults(run=_run_list)

    silence = verbs.add_parser("silence", help="stop notifying receivers for a while")
    silence.add_argument(
        "matchers",
        nargs="*",
        metavar="MATCHER",
        help="""a label to match, such as slo=NAME, 'severity=~"page|ticket"',
        tenant!=acme; all must match""",
    )
    silence.add_argument(
        "--for", dest="duration", default="", help="how long (default 1h, at most 30d)"
    )
    silence.add_argument(
        "--from", dest="begin", default="", metavar="TIME", help="start (default: now)"
    )
    silence.add_argument("--until", default="", metavar="TIME", help="end time, instead of --for")
    silence.add_argument("--by", default="", help="who is silencing (default: your user name)")
    silence.add_argument("--comment", default="", help="why, for everyone else on call")
    silence.add_argument("--end", metavar="ID", help="end this silence early")
    _add_data_dir(silence)
    silence.set_defaults(run=_run_silence)

    ack = verbs.add_parser("ack", help="acknowledge an alert and stop its reminders")
    ack.add_argument("slo", metavar="SLO", help="the SLO whose firing alerts to acknowledge")
    ack.add_argument("--by", default="", help="who is handling it (default: your user name)")
    ack.add_argument("--comment", default="", help="what you are doing about it")
    _add_data_dir(ack)
    ack.set_defaults(run=_run_ack)

    replay = verbs.add_parser("replay", help="retry dead letters under their original IDs")
    replay.add_argument(
        "--number", type=int, help="retry only this one, by its number in `alerts list`"
    )
    replay.add_argument(
        "--by", metavar="NAME", help="your name in the audit log (default: your user name)"
    )
    _add_data_dir(replay)
    replay.set_defaults(run=_run_replay)

    test = verbs.add_parser("test", help="send a test notification to every receiver")
    test.add_argument("--slos", type=Path, required=True, metavar="FILE", help="the SLO file")
    test.add_argument("--receiver", help="test only this receiver")
    test.add_argument("--json", action="store_true", help="print JSON")
    test.set_defaults(run=_run_test)


def _add_data_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data-dir", type=Path, help="the collector's data folder (also EVENKEEL_DATA_DIR)"
    )


def _book_path(args: argparse.Namespace) -> Path:
    from evenkeel.settings import load
    from evenkeel_collector.alerts.book import FILE_NAME
    from evenkeel_collector.serve.settings import CollectorSettings

    settings = load(CollectorSettings, {"data_dir": args.data_dir}).settings
    return settings.data_dir / FILE_NAME


def _run_list(args: argparse.Namespace) -> int:
    from time import time_ns

    from evenkeel_collector.operators.alert_list import listing_json, listing_text, read_listing

    if args.limit < 0:
        raise ConfigurationError(f"--limit is {args.limit}, expected at least 0")
    listing = read_listing(_book_path(args), args.limit, time_ns())
    print(json.dumps(listing_json(listing)) if args.json else listing_text(listing))
    return 0


def _run_silence(args: argparse.Namespace) -> int:
    from time import time_ns

    from evenkeel.audit import user_name
    from evenkeel_collector.operators.actions import ACTIONS, perform_locally, read_model

    if bool(args.matchers) == (args.end is not None):
        raise ConfigurationError(
            "give matchers such as slo=NAME to silence, or --end ID to end a silence"
        )
    if args.duration and args.until:
        raise ConfigurationError("give either --for or --until, not both")
    name = "silence" if args.end is None else "end-silence"
    said: dict[str, object] = {"by": args.by or user_name()}
    if args.end is None:
        said |= {"matchers": args.matchers, "duration": args.duration}
        said |= {"begin": args.begin, "end": args.until, "comment": args.comment}
    else:
        said["id"] = args.end
    order = read_model(ACTIONS[name][0], said)
    done = perform_locally(_book_path(args).parent, name, order, time_ns())
    if args.end is not None:
        print(f"silence {args.end} ended")
    else:
        print(f"silence {done['id']}: {', '.join(done['matchers'])} until {done['until']}")
    return 0


def _run_ack(args: argparse.Namespace) -> int:
    from time import time_ns

    from evenkeel.audit import user_name
    from evenkeel_collector.operators.actions import Acknowledge, perform_locally, read_model

    said = {"slo": args.slo, "by": args.by or user_name(), "comment": args.comment}
    order = read_model(Acknowledge, said)
    done = perform_locally(_book_path(args).parent, "acknowledge", order, time_ns())
    for alert in done["acknowledged"]:
        print(f"{alert}: acknowledged by {order.by}")
    return 0


def _run_replay(args: argparse.Namespace) -> int:
    from time import time_ns

    from evenkeel.audit import user_name
    from evenkeel_collector.operators.actions import Replay, perform_locally, read_model

    order = read_model(Replay, {"by": args.by or user_name(), "number": args.number})
    done = perform_locally(_book_path(args).parent, "replay", order, time_ns())
    print(f"{done['replayed']} dead letters queued; the running collector will deliver them")
    if done["overtaken"]:
        print(f"{done['overtaken']} kept: their receivers have had a later notification")
    return 0


def _run_test(args: argparse.Namespace) -> int:
    import asyncio

    from evenkeel.slo.file.slo_file import read_slo_file
    from evenkeel_collector.delivery.attempt import TrialResult, send_test

    file = read_slo_file(args.slos)
    receivers = [r for r in file.receivers if args.receiver in (None, r.name)]
    if not receivers:
        if not file.receivers:
            raise ConfigurationError(f"{args.slos} has no receivers: nothing to test")
        hint = suggestion(args.receiver, (receiver.name for receiver in file.receivers))
        raise ConfigurationError(f"{args.slos} has no receiver {args.receiver!r}; {hint}")
    attempts: list[TrialResult] = asyncio.run(send_test(receivers))
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
    summary="list, silence and acknowledge alerts; replay dead letters; test receivers",
    configure=_configure,
    extra="collector",
    keeps_private=True,
)
