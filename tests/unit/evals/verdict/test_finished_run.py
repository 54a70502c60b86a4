"""Exit codes, the record, the table, Markdown and spans of a finished run."""

import io
import json
from dataclasses import replace

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from rich.console import Console

from evenkeel import spans
from evenkeel_evals.ask.answers import Answer
from evenkeel_evals.report.spans import result_spans, send
from evenkeel_evals.report.table import print_outcome, to_markdown
from evenkeel_evals.scorers.base import Score
from evenkeel_evals.verdict.finished_run import Outcome
from evenkeel_evals.verdict.gates import parse_gates
from tests.unit.evals.finished_run import finish


@pytest.fixture
def regressed(make_pair) -> Outcome:  # type: ignore[no-untyped-def]
    return finish([make_pair(i, True, i % 3 > 0, tags=("odd",) * (i % 2)) for i in range(90)])


def test_a_regression_exits_1(regressed: Outcome) -> None:
    assert regressed.decision.exit_code == 1
    assert regressed.decision.headline.startswith("regressed: accuracy>=-1% on overall")


def test_a_headline_stays_short_however_many_slices_regress(make_pair) -> None:  # type: ignore[no-untyped-def]
    # It goes out with the gate of every slice.
    pairs = [make_pair(i, True, False, tags=(f"t{i % 30:02}",)) for i in range(600)]
    headline = finish(pairs, parse_gates("accuracy>=-5%")).decision.headline
    assert headline.startswith("regressed: accuracy>=-5% on overall, accuracy>=-5% on t00, ")
    assert headline.endswith(", accuracy>=-5% on t08 and 21 more")


def test_no_change_on_many_items_exits_0(make_pair) -> None:  # type: ignore[no-untyped-def]
    outcome = finish([make_pair(i) for i in range(400)])
    assert (outcome.decision.exit_code, outcome.decision.headline) == (0, "no worse")


def test_what_cannot_be_told_exits_3_unless_allowed(make_pair) -> None:  # type: ignore[no-untyped-def]
    pairs = [make_pair(i, i % 2 == 0, i % 2 == 1) for i in range(40)]
    assert finish(pairs).decision.exit_code == 3
    assert finish(pairs, allows_inconclusive=True).decision.exit_code == 0
    assert "inconclusive" in finish(pairs).decision.headline


def test_missing_answers_exit_3_even_if_inconclusive_is_allowed(make_pair) -> None:  # type: ignore[no-untyped-def]
    pairs = [make_pair(i, True, None if i % 10 == 0 else True) for i in range(400)]
    outcome = finish(pairs, allows_inconclusive=True)
    assert outcome.decision.exit_code == 3
    assert (
        "40 of 400 pairs have no score on both sides (HTTP 500: broken)"
        in outcome.decision.headline
    )
    assert outcome.to_record()["verdict"] == "could not measure"


@pytest.mark.parametrize(
    ("num_unscored", "num_on_the_baseline", "exit_code"),
    [(4, 0, 0), (5, 0, 3), (16, 0, 3), (16, 12, 0), (16, 11, 3), (0, 16, 0)],
)
def test_a_candidate_gains_nothing_by_answers_that_have_no_score(  # type: ignore[no-untyped-def]
    make_pair,
    num_unscored: int,
    num_on_the_baseline: int,
    exit_code: int,
) -> None:
    def without_score(answer: Answer) -> Answer:
        return replace(answer, score=Score.unscored("python: KeyError"))

    pairs = [make_pair(i) for i in range(400)]
    for i in range(num_unscored):
        pairs[i] = replace(pairs[i], b=without_score(pairs[i].b))
    for i in range(100, 100 + num_on_the_baseline):
        pairs[i] = replace(pairs[i], a=without_score(pairs[i].a))
    # Nothing is lost where the baseline was wrong.
    pairs[200:204] = [make_pair(i, False) for i in range(200, 204)]
    pairs[200:204] = [replace(pair, b=without_score(pair.b)) for pair in pairs[200:204]]
    decision = finish(pairs, max_unmeasured_ratio=0.2, allows_inconclusive=True).decision
    assert decision.exit_code == exit_code
    if exit_code:
        assert decision.headline == (
            f"could not measure: {num_unscored} answers of the candidate have no score where the "
            f"baseline is right (python: KeyError), {num_on_the_baseline} the other way round; "
            "counted as wrong, they exceed accuracy>=-1%"
        )


@pytest.mark.parametrize(
    ("num_right", "num_candidate", "exit_code"),
    [(0, 0, 3), (20, 0, 3), (20, 20, 3), (40, 0, 1), (40, 40, 0), (0, 300, 0)],
)
def test_a_baseline_that_has_nothing_to_lose_proves_nothing(  # type: ignore[no-untyped-def]
    make_pair,
    num_right: int,
    num_candidate: int,
    exit_code: int,
) -> None:
    # Such as a scorer that no answer satisfies.
    pairs = [make_pair(i, i < num_right, i < num_candidate) for i in range(400)]
    decision = finish(pairs, parse_gates("accuracy>=-5%"), allows_inconclusive=True).decision
    assert decision.exit_code == exit_code
    if exit_code == 3:
        assert decision.headline == (
            f"could not measure: the baseline is right on {num_right / 400:.1%} of the items, so "
            "accuracy>=-5% would tolerate losing all of them; check how they are scored"
        )


def test_a_slice_whose_answers_have_no_score_does_not_pass_unjudged(make_pair) -> None:  # type: ignore[no-untyped-def]
    # The answers of a slice cannot be scored on the candidate: 4.5% of all, within both limits.
    pairs = [make_pair(i, tags=("refunds",) if i < 18 else ()) for i in range(400)]
    odd = Score.unscored("the scorer json failed")
    crashed = [replace(p, b=replace(p.b, score=odd)) if p.index < 18 else p for p in pairs]
    gates = parse_gates("accuracy>=-5%")
    decision = finish(crashed, gates).decision
    assert decision.exit_code == 3
    assert "18 answers of the candidate on refunds have no score" in decision.headline
    assert "counted as wrong, they break accuracy>=-5% there" in decision.headline
    # Spread over the items, or unscored on both sides alike, they hide no slice.
    spread = [replace(p, item=replace(p.item, tags=(f"t{p.index % 20}",))) for p in crashed]
    assert finish(spread, gates).decision.exit_code == 0
    alike = [replace(p, a=replace(p.a, score=odd)) if p.index < 18 else p for p in crashed]
    assert finish(alike, gates).decision.exit_code == 0


def test_a_slice_is_doubted_only_if_the_run_itself_would_call_it_a_regression(make_pair) -> None:  # type: ignore[no-untyped-def]
    # 5 lost and 1 without a score: p = 0.016, but times the four gates on the slice 0.063.
    pairs = [make_pair(i, True, i >= 5, tags=("refunds",) if i < 20 else ()) for i in range(400)]
    pairs[5] = replace(pairs[5], b=replace(pairs[5].b, score=Score.unscored("no number")))
    latencies = ", shift_ttft<=+9%, shift_e2e<=+9%, p50_e2e<=+9%"
    assert finish(pairs, parse_gates("accuracy>=-5%" + latencies)).decision.exit_code == 0
    assert finish(pairs, parse_gates("accuracy>=-5%")).decision.exit_code == 3


@pytest.mark.parametrize(("count", "letter", "code"), [(20, "b", 0), (21, "b", 3), (21, "a", 0)])
def test_answers_of_the_candidate_without_a_time_do_not_pass_a_latency_gate(  # type: ignore[no-untyped-def]
    make_pair, count: int, letter: str, code: int
) -> None:
    pairs = [make_pair(i) for i in range(400)]
    for i in range(count):
        answer = getattr(pairs[i], letter)
        untimed = replace(answer, reply=replace(answer.reply, ttft_s=None))
        pairs[i] = replace(pairs[i], **{letter: untimed})
    # Failed requests and single tokens have no time either, for good reasons.
    pairs[50:54] = [make_pair(i, True, None) for i in range(50, 54)]
    gates = parse_gates("shift_ttft<=+3%, shift_tpot<=+3%")
    decision = finish(pairs, gates, allows_inconclusive=True).decision
    assert decision.exit_code == code
    if code:
        assert decision.headline == (
            "could not measure: 21 of 400 answers have no ttft on the candidate only, "
            "so shift_ttft<=+3% says nothing about them"
        )


def test_the_record_is_json_without_nan(regressed: Outcome) -> None:
    record = json.loads(json.dumps(regressed.to_record(), allow_nan=False))
    assert record["verdict"] == "regressed"
    assert record["exit_code"] == 1
    assert record["baseline"]["accuracy"] == 1.0
    assert record["candidate"]["accuracy"] == pytest.approx(60 / 90)
    overall = record["results"][0]
    assert (overall["gate"], overall["slice"], overall["num_pairs"]) == (
        "accuracy>=-1%",
        "overall",
        90,
    )
    assert overall["lower"] < overall["estimate"] < overall["upper"] < 0


def test_tokens_that_no_server_counted_are_none(make_pair) -> None:  # type: ignore[no-untyped-def]
    record = finish([make_pair(i, True, i > 0) for i in range(20)]).to_record()
    assert (record["baseline"]["output_tokens"], record["baseline"]["input_tokens"]) == (60, None)


def test_a_stranger_can_read_the_table(regressed: Outcome) -> None:
    console = Console(file=io.StringIO(), width=160)
    print_outcome(regressed, console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "candidate short (support@2) against baseline full (support@1)" in text
    assert "-33.3 pp" in text
    assert "verdict: regressed" in text
    assert "baseline full: 90 of 90 right" in text


def test_markdown_has_a_row_a_result(regressed: Outcome) -> None:
    text = to_markdown(regressed)
    assert text.count("| accuracy>=-1% |") == 2
    assert "**regressed:" in text


def test_an_answers_span_has_the_ids_its_request_carried(regressed: Outcome) -> None:
    batch = list(result_spans(regressed))
    first = batch[0]
    assert first.name == spans.SPAN_EVALUATION
    assert first.context is not None
    assert f"{first.context.trace_id:032x}" == regressed.pairs[0].a.trace_id
    assert f"{first.context.span_id:016x}" == regressed.pairs[0].a.span_id
    assert first.attributes is not None
    assert dict(first.attributes) == {
        spans.EVAL_NAME: "exact",
        spans.EVAL_SCORE: 1.0,
        spans.EVAL_LABEL: "right",
        spans.EVAL_RUN_ID: "r1",
        spans.EVAL_DATASET: "sums@1.0.0",
        spans.EVAL_SIDE: "A",
        spans.EVAL_ITEM_ID: "i0",
        spans.EVAL_PAIR: 0,
        spans.EVAL_OUTPUT_TOKENS: 3,
        spans.EVAL_CLIENT_TTFT_S: 0.1,
        spans.EVAL_CLIENT_E2E_S: 1.0,
        spans.REQUEST_MODEL: "m",
        spans.PROMPT_NAME: "support",
        spans.PROMPT_VERSION: "1",
        spans.ROUTE: "eval",
    }


def test_one_span_a_gate_and_slice_and_all_encode(regressed: Outcome) -> None:
    batch = list(result_spans(regressed))
    gates = [span for span in batch if span.name == spans.SPAN_EVALUATION_RUN]
    assert len(batch) == 2 * 90 + len(regressed.results)
    assert gates[0].attributes is not None
    assert gates[0].attributes[spans.EVAL_VERDICT] == "regressed"
    assert gates[0].attributes[spans.EVAL_SLICE] == "overall"
    assert len({span.context.trace_id for span in gates if span.context}) == 1
    assert encode_spans(batch).ByteSize() > 0


def test_an_unscored_answer_is_an_error_span_without_a_score(make_pair) -> None:  # type: ignore[no-untyped-def]
    outcome = finish([make_pair(0, True, None), *(make_pair(i) for i in range(1, 12))])
    span = list(result_spans(outcome))[1]
    assert span.attributes is not None
    assert span.attributes[spans.EVAL_LABEL] == "unscored"
    assert spans.EVAL_SCORE not in span.attributes
    assert span.status.description == "HTTP 500: broken"


def test_none_as_endpoint_sends_nothing(regressed: Outcome) -> None:
    assert send(regressed, "none") is None


def test_the_headline_names_what_is_worse_and_the_slices_that_lost(make_pair) -> None:  # type: ignore[no-untyped-def]
    pairs = [make_pair(i, True, i >= 9, tags=("hard",)) for i in range(100)]
    pairs += [make_pair(i, tags=("easy",)) for i in range(100, 900)]
    gates = parse_gates("accuracy>=-10%")
    outcome = finish(pairs, gates)
    assert outcome.decision.exit_code == 0
    assert outcome.decision.headline == (
        "worse, within the tolerance: accuracy>=-10% "
        "(slices that are worse on their own: accuracy on hard)"
    )
    assert outcome.to_record()["verdict"] == "worse"
