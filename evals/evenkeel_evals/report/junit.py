"""Renders a run as JUnit XML, one test case per gate and slice, for a CI system's test tab."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from evenkeel_evals.report.table import cells
from evenkeel_evals.stats.verdict_names import Verdict
from evenkeel_evals.verdict.decision import COULD_NOT_MEASURE
from evenkeel_evals.verdict.finished_run import Outcome
from evenkeel_evals.verdict.gate_verdicts import GateResult

# Characters not allowed in XML 1.0, even escaped.
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_junit(outcome: Outcome) -> str:
    """Return the XML.

    A regression is a failure. An inconclusive gate over all items is an error unless the run
    allows it; on a slice it is skipped, since slices alone cannot make a run inconclusive.
    """
    cases = [_case(result, outcome) for result in outcome.results]
    measured = ElementTree.Element("testcase", name="every pair has a score", classname="run")
    if outcome.decision.unmeasured is not None:
        # Not the headline, which may be about a regression.
        _child(measured, "error", f"{COULD_NOT_MEASURE}: {outcome.decision.unmeasured}")
    cases.insert(0, measured)
    for item_id in outcome.decision.broken_items:
        case = ElementTree.Element("testcase", name=_legal(item_id), classname="guard")
        _child(case, "failure", "always right on the baseline, always wrong on the candidate")
        cases.append(case)
    suite = ElementTree.Element(
        "testsuite",
        name=_legal(f"evenkeel eval {outcome.dataset_label}"),
        tests=str(len(cases)),
        failures=_count(cases, "failure"),
        errors=_count(cases, "error"),
        skipped=_count(cases, "skipped"),
        time=f"{outcome.seconds:.3f}",
    )
    suite.extend(cases)
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _case(result: GateResult, outcome: Outcome) -> ElementTree.Element:
    case = ElementTree.Element(
        "testcase", name=_legal(result.gate.text), classname=_legal(result.slice_name)
    )
    effect = result.effect
    _, _, num_pairs, baseline, candidate, change, interval, _ = cells(result)
    figures = f"{effect.note or change}, {num_pairs} pairs"
    if effect.estimate is not None:
        figures = (
            f"baseline {baseline}, candidate {candidate}, change {change}, "
            f"95% interval {interval}, {num_pairs} pairs"
            + (f"; {effect.note}" if effect.note else "")
        )
    if result.verdict is Verdict.REGRESSED:
        _child(case, "failure", figures)
    elif result.verdict is Verdict.INCONCLUSIVE:
        is_blocking = result in outcome.decision.blocking
        _child(case, "error" if is_blocking else "skipped", f"inconclusive: {figures}")
    else:
        _child(case, "system-out", f"{result.verdict}: {figures}")
    return case


def _count(cases: list[ElementTree.Element], tag: str) -> str:
    return str(sum(case.find(tag) is not None for case in cases))


def _child(case: ElementTree.Element, tag: str, text: str) -> None:
    child = ElementTree.SubElement(case, tag)
    if tag == "system-out":
        child.text = _legal(text)
    else:
        child.set("message", _legal(text))


def _legal(text: str) -> str:
    return _ILLEGAL.sub("\ufffd", text)
