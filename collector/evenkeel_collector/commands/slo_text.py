"""Format windows, SLO files and replays as text and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import inf, nextafter
from typing import Any
from urllib.parse import urlsplit

from evenkeel.durations import format_duration
from evenkeel.slo.budget_policy import BudgetStep
from evenkeel.slo.burn_rates import AlertWindow
from evenkeel.slo.matchers import matchers_text
from evenkeel.slo.model import SESSIONS, Indicator, Slo, SloFile
from evenkeel.slo.receiver import Receiver, ReceiverType
from evenkeel.slo.routing import InhibitRule
from evenkeel.slo.rules import Rule, Threshold
from evenkeel_collector.slo.percent import exact_percent


def windows_json(
    windows: Sequence[AlertWindow], target: Fraction, error_ratios: Sequence[Fraction]
) -> list[dict[str, Any]]:
    """Return one object per window pair; times are in seconds, null if an alert never fires."""
    return [
        {
            "severity": window.severity.value,
            "budget_ratio": float(window.budget_ratio),
            "long_s": float(window.long_s),
            "short_s": float(window.short_s),
            "factor": float(window.factor),
            "detect_s": {
                str(float(error)): _float(window.detect_s(target, error)) for error in error_ratios
            },
            "reset_s": {
                str(float(error)): _float(window.reset_s(target, error)) for error in error_ratios
            },
        }
        for window in windows
    ]


def _float(value: Fraction | None) -> float | None:
    return None if value is None else float(value)


def windows_text(
    windows: Sequence[AlertWindow], target: Fraction, error_ratios: Sequence[Fraction]
) -> str:
    """Return a table of windows with detection and reset times per error ratio."""
    rows = [["severity", "budget", "long", "short", "factor", "fires above"]]
    for window in windows:
        error_limit = window.error_limit(target)
        limit = f"{exact_percent(error_limit)} errors" if error_limit < 1 else "never"
        spent = exact_percent(window.budget_ratio)
        spans = format_duration(window.long_s), format_duration(window.short_s)
        rows.append([window.severity, spent, *spans, f"{float(window.factor):.4g}", limit])
    lines = [_table(rows)]
    if any(window.error_limit(target) >= 1 for window in windows):
        lines.append("never: not even 100% errors burn that fast at this target.")
    if any(window.factor < 1 for window in windows):
        lines.append(
            "A factor below 1 fires even though the budget would last: the window is too long for "
            "this period."
        )
    for error in error_ratios:
        rows = [["", "fires after", "resets after"]]
        if all(window.detect_s(target, error) is None for window in windows):
            lines.append(f"\nIf {exact_percent(error)} of events are bad, nothing fires.")
            continue
        for window in windows:
            span = f"{window.severity} {format_duration(window.long_s)}"
            rows.append([f"  {span}", *_detect_and_reset(window, target, error)])
        lines.append(f"\nIf {exact_percent(error)} of events are bad:\n{_table(rows)}")
    return "\n".join(lines)


def _detect_and_reset(window: AlertWindow, target: Fraction, error: Fraction) -> tuple[str, str]:
    detect_s, reset_s = window.detect_s(target, error), window.reset_s(target, error)
    if detect_s is None or reset_s is None:
        return "never", "-"
    return format_duration(detect_s), format_duration(reset_s)


def check_text(file: SloFile) -> str:
    """Describe a valid file, including the error ratio at which each SLO alerts."""
    blocks = [_slo_text(slo, file.interval_s) for slo in file.slos]
    blocks += [_rule_text(rule) for rule in file.rules]
    blocks += [_inhibition_text(rule) for rule in file.inhibitions]
    receivers = ", ".join(_receiver_text(receiver) for receiver in file.receivers)
    if file.notes:
        blocks.append("\n".join(file.notes))
    listed = f"{_number(file.slos, 'SLO')} and {_number(file.rules, 'rule')}"
    if file.anomalies:
        listed += f", and {_number(file.anomalies, 'default rule')} on anomalies"
    if file.foreign:
        listed += f"; {len(file.foreign)} not evaluated"
    blocks.append(
        f"valid: {listed}; evaluated every {format_duration(file.interval_s)}; "
        f"receivers: {receivers or 'none, alerts are only recorded'}"
    )
    return "\n\n".join(blocks)


def check_json(file: SloFile) -> dict[str, Any]:
    """Return the same for programs."""
    return {
        "slos": [_slo_json(slo) for slo in file.slos],
        "receivers": [receiver.name for receiver in file.receivers],
        "interval_s": file.interval_s,
        "not_evaluated": [{"name": f.name, "reason": f.reason} for f in file.foreign],
        "notes": list(file.notes),
    }


def _slo_json(slo: Slo) -> dict[str, Any]:
    grouping = slo.indicator.grouping
    return {
        "name": slo.name,
        "objective": slo.indicator.metric.value,
        "threshold_s": slo.indicator.threshold_s,
        "most_turns": slo.indicator.most_turns,
        "budget": slo.indicator.budget,
        "select": dict(slo.indicator.select),
        "filters": [str(each) for each in slo.indicator.filters],
        "http_status": [str(each) for each in slo.indicator.statuses],
        "group_by": list(grouping.columns) if grouping is not None else [],
        "max_groups": grouping.most if grouping is not None else None,
        "target": float(slo.target),
        "period_s": float(slo.scaled_period_s),
        "scale": float(slo.scale),
        "for_s": float(slo.pending_s * slo.scale),
        "keep_firing_for_s": float(slo.keep_firing_s * slo.scale),
        "min_bad": slo.min_bad,
        "confidence": None if slo.confidence is None else float(slo.confidence),
        "no_data_s": float(slo.scaled_no_data_s),
        "labels": dict(slo.labels),
        "budget_policy": [
            {
                "spent": float(step.spent_ratio),
                "alert": step.severity and step.severity.value,
                "labels": dict(step.labels),
                "freeze": "prompts" if step.freezes_promotions else None,
            }
            for step in slo.budget_policy
        ],
        "windows": windows_json(slo.windows, slo.target, ()),
    }


def _inhibition_text(rule: InhibitRule) -> str:
    same = f" and the same {', '.join(rule.equal)}" if rule.equal else ""
    return (
        f"while an alert with {matchers_text(rule.source)} fires, those with "
        f"{matchers_text(rule.target)}{same} are withheld"
    )


def _number(listed: Sequence[object], noun: str) -> str:
    return _number_of(len(listed), noun)


def _receiver_text(receiver: Receiver) -> str:
    # Show only the host: the rest of a webhook's URL is often secret.
    host = urlsplit(receiver.url).hostname if receiver.url else "address is a secret"
    if receiver.type is ReceiverType.APPRISE and receiver.url:
        # Where other URLs have a host, apprise's often have a token.
        host = urlsplit(receiver.url).scheme
    return f"{receiver.name} ({receiver.type}, {host})"


def _rule_text(rule: Rule) -> str:
    where = ", ".join(f"{name}={value}" for name, value in rule.select.items())
    text = f"rule {rule.name}: {rule.severity} when {rule.test}{f' for {where}' if where else ''}"
    if isinstance(rule.test, Threshold):
        text += f", with {_number_of(rule.test.min_requests, 'request')} or more"
    if rule.pending_s or rule.keep_firing_s:
        text += f"; {_firing_text('fires', 'that holds', rule.pending_s, rule.keep_firing_s)}"
    return text


def _indicator_text(indicator: Indicator) -> str:
    if indicator.budget is not None:
        return f"every request with a cost; for {indicator.selection or 'all requests'}"
    limits = indicator.judged.items()
    good = indicator.metric.value
    if indicator.threshold_s is not None:
        # `op: lt` is stored as the largest float below the limit.
        shown = f"{indicator.threshold_s:g}"
        side = "<" if indicator.threshold_s == nextafter(float(shown), -inf) else "<="
        good += f" {side} {shown} s"
    elif indicator.most_turns is not None:
        good += f" <= {indicator.most_turns}"
    elif limits:
        good = " and ".join(f"{name} <= {seconds:g} s" for name, seconds in limits)
    every = "all sessions" if indicator.metric in SESSIONS else "all requests"
    text = (
        f"{good}; for {indicator.selection or every}; "
        f"error {indicator.error}, aborted {indicator.aborted}, shed {indicator.shed}"
    )
    if indicator.statuses:
        text += f"; HTTP {', '.join(map(str, indicator.statuses))}"
    return text


def _slo_text(slo: Slo, interval_s: float) -> str:
    period, is_money = slo.period_words, slo.indicator.budget is not None
    head = f"{slo.name}: {exact_percent(slo.target)} of events good over {period}"
    if is_money:
        head = f"{slo.name}: costs at most {slo.indicator.budget:g} over {period}"
    for member in slo.indicator.parts:
        weight = f"weight {float(member.weight):g}: " if slo.indicator.members else ""
        what = "counts" if is_money else "good"
        head += f"\n  {what}: {weight}{_indicator_text(member.indicator)}"
        if member.indicator.metric in SESSIONS:
            silence = format_duration(member.indicator.silence_s * slo.scale)
            head += f"\n  a session counts once it is over: after {silence} of silence"
    grouping = slo.indicator.grouping
    if grouping is not None:
        each = ",".join(column.upper() for column in grouping.columns)
        head += (
            f"\n  one SLO for each {' and '.join(grouping.columns)} that requests had, named "
            f"{slo.name}/{each}; {grouping.most} at most"
        )
    if slo.slicing is not None:
        head += f"\n  counted in slices of {format_duration(slo.slicing.length_s)}"
    if slo.calendar is not None:
        head += f"\n  the budget belongs to the current {slo.calendar.words}"
        head += f" in {slo.calendar.zone.key}"
        head += f", counted from {slo.calendar.start}" if slo.calendar.start else ""
    if slo.scale != 1:
        head += f"\n  all durations are scaled by {slo.scale}, for demonstration only"
    pending_s, keep_s = slo.pending_s * slo.scale, slo.keep_firing_s * slo.scale
    head += f"\n  {_firing_text('fires', 'both windows of a row burn', pending_s, keep_s)}"
    if slo.min_bad:
        head += f"; needs at least {_number_of(slo.min_bad, 'bad event')}"
    if slo.confidence is not None:
        head += f", and for a page {exact_percent(slo.confidence)} confidence"
    no_data_s = slo.scaled_no_data_s
    head += (
        "\n  no alert if there are no events"
        if not no_data_s
        else (f"\n  fires SloNoData without events for {format_duration(no_data_s)}")
    )
    head += "".join(f"\n  {_step_text(step)}" for step in slo.budget_policy)
    if slo.labels:
        head += f"\n  labels {', '.join(f'{name}={value}' for name, value in slo.labels.items())}"
    table = _spending_text(slo) if is_money else windows_text(slo.windows, slo.target, ())
    if any(window.long_s < interval_s for window in slo.windows):
        table += (
            f"\nWindows shorter than the evaluation interval ({format_duration(interval_s)}) are "
            "only sampled: a burn in between may be missed."
        )
    return head + "\n" + "\n".join(f"  {line}" for line in table.splitlines())


def _spending_text(slo: Slo) -> str:
    """Return a table of what the windows of a budget in money may cost."""
    rows = [["severity", "budget", "long", "short", "factor", "fires above"]]
    for window in slo.windows:
        spans = format_duration(window.long_s), format_duration(window.short_s)
        most = f"{float(window.budget_ratio) * (slo.indicator.budget or 0.0):g} in {spans[0]}"
        spent = exact_percent(window.budget_ratio)
        rows.append([window.severity, spent, *spans, f"{float(window.factor):.4g}", most])
    return _table(rows)


def _step_text(step: BudgetStep) -> str:
    done = [f"fires SloBudgetSpent ({step.severity})"] if step.severity else []
    done += [f"labels its alerts {name}={value}" for name, value in step.labels.items()]
    done += ["freezes prompt promotion"] if step.freezes_promotions else []
    return f"at {exact_percent(step.spent_ratio)} of the budget spent: {', '.join(done)}"


def _firing_text(verb: str, holding: str, pending_s: Fraction, keep_firing_s: Fraction) -> str:
    since = f" for {format_duration(pending_s)}" if pending_s else ""
    ends = f"{format_duration(keep_firing_s)} after they stop" if keep_firing_s else "at once"
    return f"{verb} when {holding}{since}; resolves {ends}"


def _number_of(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
