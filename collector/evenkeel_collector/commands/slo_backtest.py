"""`evenkeel slo backtest`: replay counted minutes or stored requests against an SLO."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenkeel.errors import ConfigurationError
from evenkeel.known_names import suggestion
from evenkeel_collector.commands.slo_arguments import add_slo_file
from evenkeel_collector.commands.stored_minutes import (
    add_store_arguments,
    check_days,
    last_days,
    stored_minutes,
)

if TYPE_CHECKING:
    from evenkeel.slo.backtest import BacktestResult
    from evenkeel.slo.model import Slo
    from evenkeel_collector.slo.backtest_score import BacktestScore, Incident


@dataclass(frozen=True, slots=True)
class _Tried:
    """One SLO's replay, with a score if incidents are marked."""

    slo: Slo
    replay: BacktestResult
    score: BacktestScore | None


def add_backtest(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the parser."""
    backtest = verbs.add_parser(
        "backtest", help="replay past events and list the alerts an SLO would have fired"
    )
    add_slo_file(backtest)
    backtest.add_argument("--name", help="the SLO to replay, if the file has several")
    source = backtest.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--events",
        type=Path,
        metavar="CSV",
        help="CSV with columns minute (Unix minutes), total, bad",
    )
    source.add_argument(
        "--days", type=int, metavar="N", help="replay the requests stored in the last N days"
    )
    backtest.add_argument(
        "--incidents",
        type=Path,
        metavar="CSV",
        help="CSV with columns from, until, name: incidents that should have alerted, in addition "
        "to those marked with `slo correct --reason incident`",
    )
    add_store_arguments(backtest)
    backtest.add_argument("--json", action="store_true", help="print JSON")
    backtest.set_defaults(run=_run_backtest)


def _run_backtest(args: argparse.Namespace) -> int:
    from evenkeel.slo.file.slo_file import read_slo_file
    from evenkeel_collector.slo.backtest_score import read_incidents

    file = read_slo_file(args.slo)
    if args.days is not None:
        check_days(args.days)
    # User-supplied counts need no metric source, so any objective can be replayed.
    known = list(file.slos)
    if args.events is not None:
        known += (slo for foreign in file.foreign for slo in foreign.slos)
    names = [slo.name for slo in known]
    if not names:
        raise ConfigurationError(
            f"{args.slo} has no SLO that evenkeel evaluates; run evenkeel slo check to see why"
        )
    # A group's name begins with the name of its definition.
    definition = None if args.name is None else args.name.partition("/")[0]
    if definition is not None and definition not in names:
        raise ConfigurationError(
            f"{args.slo} has no SLO {args.name!r}; {suggestion(args.name, names)}"
        )
    wanted = [slo for slo in known if definition in (None, slo.name)]
    marked = [] if args.incidents is None else read_incidents(args.incidents)
    if args.events is not None:
        if len(wanted) > 1:
            raise ConfigurationError(
                f"{args.slo} has {len(names)} SLOs; choose one with --name: {', '.join(names)}"
            )
        _show_one(args, _try_events(args.events, wanted[0], marked))
    else:
        tried = _try_days(args, wanted, marked)
        if args.name != definition:
            tried = [each for each in tried if each.slo.name == args.name]
            if not tried:
                raise ConfigurationError(
                    f"no request of the {last_days(args.days)} belongs to {args.name!r}"
                )
        _show_all(args, tried)
    return 0


def _try_events(path: Path, slo: Slo, marked: Sequence[Incident]) -> _Tried:
    from evenkeel.slo.backtest import read_minutes, replay

    return _try(slo, replay(slo, read_minutes(path)), marked)


def _try_days(
    args: argparse.Namespace, slos: Sequence[Slo], marked: Sequence[Incident]
) -> list[_Tried]:
    from evenkeel.slo.backtest import replay

    return [
        _try(
            stored.slo,
            replay(stored.slo, stored.minutes, stored.until, stored.allowed),
            [*marked, *stored.incidents],
        )
        for stored in stored_minutes(args.url, args.data_dir, args.days, slos)
    ]


def _try(slo: Slo, result: BacktestResult, incidents: Sequence[Incident]) -> _Tried:
    from evenkeel_collector.slo.backtest_score import score_alerts

    score = score_alerts(result.alerts, incidents, slo.severities) if incidents else None
    return _Tried(slo, result, score)


def _show_one(args: argparse.Namespace, tried: _Tried) -> None:
    from evenkeel_collector.commands.slo_backtest_text import backtest_json, backtest_text

    if args.json:
        print(json.dumps(backtest_json(tried.replay, tried.score)))
    else:
        print(backtest_text(tried.replay, tried.score))


def _show_all(args: argparse.Namespace, tried: Sequence[_Tried]) -> None:
    from evenkeel_collector.commands.slo_backtest_text import backtest_json, backtest_text

    if args.json:
        slos: list[dict[str, Any]] = [
            {"slo": t.slo.name, **backtest_json(t.replay, t.score)} for t in tried
        ]
        print(json.dumps({"days": args.days, "slos": slos}))
        return
    blocks = [
        f"{t.slo.name}, {last_days(args.days)}\n{backtest_text(t.replay, t.score)}" for t in tried
    ]
    print("\n\n".join(blocks))
