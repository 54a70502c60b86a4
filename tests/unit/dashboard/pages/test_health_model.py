"""The health page's verdict and tiles, from rows like the store's."""

from typing import Any

import pytest

from evenkeel_dashboard.draw.slo_tiles import (
    closest_burn,
    drawn_limits,
    slo_tile,
    worst_slos,
)
from evenkeel_dashboard.pages.health.model import (
    Shown,
    headline_tiles,
    newest_words,
    range_words,
    verdict,
    worst_firing,
)

EMPTY = {
    "num_requests": 100,
    "requests_per_s": 0.0,
    "output_tokens_per_s": 0.0,
    **dict.fromkeys(
        (
            "ttft_p50_s", "ttft_p95_s", "ttft_p99_s", "itl_p99_p95_s", "tpot_p95_s", "error_ratio",
            "aborted_ratio", "shed_ratio", "cached_token_ratio", "acceptance_rate",
            "queue_mean_s", "prefill_mean_s",
        )
    ),
}  # fmt: skip
CALM = {**EMPTY, "ttft_p95_s": 0.3, "queue_mean_s": 0.01, "prefill_mean_s": 0.09}
CROWDED = {**EMPTY, "ttft_p95_s": 4.0, "queue_mean_s": 0.81, "prefill_mean_s": 0.19}


def slo(**changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "slo": "chat-ttft",
        "objective": "ttft",
        "threshold_s": 0.5,
        "target": 0.99,
        "period_s": 2_592_000.0,
        "calendar_period": "",
        "scale": 1.0,
        "state": "ok",
        "severity": None,
        "sli": 0.995,
        "budget_left_ratio": 0.5,
        "window_severity": ["page", "ticket"],
        "window_factor": [14.4, 6.0],
        "window_short_s": [300.0, 21_600.0],
        "window_burn_short": [0.5, 0.4],
        "window_burn_long": [0.5, 0.4],
    }
    return row | changes


BURNING = slo(
    state="firing",
    severity="page",
    window_burn_long=[22.4, 9.0],
    window_burn_short=[39.0, 9.0],
)
TEN_PAST_THREE_MS = 1_795_576_200_000
SHOWN = Shown("in the last hour", TEN_PAST_THREE_MS, is_past=False, burned_ms={})


@pytest.mark.parametrize(
    ("slos", "level", "headline"),
    [
        pytest.param([], "unknown", "No SLO is evaluated", id="no SLO, no verdict"),
        pytest.param([slo()], "good", "Healthy: 1 of 1 SLOs met", id="met"),
        pytest.param(
            [slo(), BURNING],
            "bad",
            "chat-ttft is burning its error budget 39× too fast (last 5 min)",
            id="one fires",
        ),
        pytest.param(
            [slo(state="pending", severity="page")], "warning", "At risk: chat-ttft", id="pending"
        ),
        pytest.param(
            [slo(budget_left_ratio=-0.2)],
            "warning",
            "No SLO is firing, but chat-ttft has spent its error budget",
            id="calm but overspent",
        ),
        pytest.param(
            [slo(state="no_data", sli=None, budget_left_ratio=None)],
            "unknown",
            "No data to judge",
            id="no data is not healthy",
        ),
        pytest.param(
            [slo(state="stale", time_ms=1_795_560_000_000)],
            "unknown",
            "No SLO has been evaluated since 2026-11-24 22:40:00 UTC",
            id="the evaluator has stopped",
        ),
        pytest.param(
            [slo(), slo(slo="chat-e2e", state="unknown", sli=None, budget_left_ratio=None)],
            "unknown",
            "1 of 2 SLOs met, but chat-e2e cannot be evaluated",
            id="one cannot be judged",
        ),
        pytest.param(
            [slo(), slo(slo="renamed", state="stale", time_ms=1_795_560_000_000)],
            "good",
            "Healthy: 1 of 1 SLOs met, none firing; renamed is no longer evaluated",
            id="one was taken out of the file",
        ),
        pytest.param(
            [slo(slo=f"t{i}", state="pending") for i in range(1_007)],
            "warning",
            "t3 (pending), t4 (pending) and 1,002 more",
            id="more than a headline can name",
        ),
    ],
)
def test_verdict(slos: list[dict[str, Any]], level: str, headline: str) -> None:
    said = verdict(slos, CALM, EMPTY, SHOWN)
    assert said.level == level
    assert headline in said.headline


RECOVERED = slo(
    state="firing",
    severity="ticket",
    window_burn_long=[2.0, 7.0],
    window_burn_short=[0.0, 6.5],
)


@pytest.mark.parametrize(
    ("burned_ago_s", "headline"),
    [
        pytest.param(
            360,
            "chat-ttft recovered 03:04:00 UTC, 6 min ago. A ticket stays open until about 09:04:00",
            id="recovered",
        ),
        pytest.param(
            None,
            "chat-ttft has recovered. A ticket stays open until its windows are clear",
            id="since when is unknown",
        ),
    ],
)
def test_an_slo_that_fires_but_no_longer_burns_has_recovered(
    burned_ago_s: int | None, headline: str
) -> None:
    at_ms = None if burned_ago_s is None else TEN_PAST_THREE_MS - burned_ago_s * 1000
    shown = Shown("in the last hour", TEN_PAST_THREE_MS, False, {"chat-ttft": at_ms})
    said = verdict([slo(), RECOVERED], CALM, EMPTY, shown)
    assert said.level == "warning"
    assert said.headline.startswith(headline)


def test_a_verdict_on_a_past_range_says_when() -> None:
    past = Shown("in this range", TEN_PAST_THREE_MS, is_past=True, burned_ms={})
    headline = verdict([BURNING], CROWDED, CALM, past).headline
    assert headline.startswith("At 2026-11-25 03:10:00 UTC, chat-ttft was burning its error budget")
    calm = verdict([slo()], CALM, CALM, past).headline
    assert calm.startswith("At 2026-11-25 03:10:00 UTC, healthy")


@pytest.mark.parametrize(
    ("slos", "headline"),
    [
        (
            [RECOVERED],
            "chat-ttft had recovered at 2026-11-25 03:04:00 UTC; a ticket was still open",
        ),
        ([slo(budget_left_ratio=-0.2)], "no SLO was firing, but chat-ttft had spent its error"),
        (
            [slo(state="no_data", sli=None, budget_left_ratio=None)],
            "there was no data to judge the SLOs",
        ),
        (
            [slo(state="stale", time_ms=1_795_560_000_000)],
            "no SLO had been evaluated since 2026-11-24 22:40:00 UTC",
        ),
        (
            [slo(), slo(slo="chat-e2e", state="unknown", sli=None, budget_left_ratio=None)],
            "1 of 2 SLOs met, but chat-e2e could not be evaluated",
        ),
        (
            [slo(), slo(slo="renamed", state="stale", time_ms=1_795_560_000_000)],
            "healthy: 1 of 1 SLOs met, none firing; renamed was no longer evaluated",
        ),
    ],
)
def test_a_verdict_on_a_past_range_is_in_the_past(
    slos: list[dict[str, Any]], headline: str
) -> None:
    burned_ms = {"chat-ttft": TEN_PAST_THREE_MS - 360_000}
    past = Shown("in this range", TEN_PAST_THREE_MS, is_past=True, burned_ms=burned_ms)
    said = verdict(slos, CALM, EMPTY, past).headline
    assert said.startswith(f"At 2026-11-25 03:10:00 UTC, {headline}")


def test_requests_of_a_sender_whose_clock_is_ahead_are_not_the_newest() -> None:
    now_ms = TEN_PAST_THREE_MS
    assert newest_words(None, None, now_ms) == ""
    newest = newest_words(now_ms - 1000, None, now_ms)
    assert newest.startswith("The store's newest request arrived ") and "clock" not in newest
    ahead = newest_words(None, now_ms + 3_600_000, now_ms)
    assert ahead.startswith("Some requests are up to 60 min in the future, until ")
    assert newest_words(now_ms - 1000, now_ms + 3_600_000, now_ms) == f"{newest} {ahead}"


def test_the_banner_leads_to_the_slo_that_burns_fastest() -> None:
    other = BURNING | {"slo": "worse", "window_burn_short": [50.0, 9.0]}
    assert worst_firing([slo(), BURNING, other]) == "worse"
    assert worst_firing([slo()]) == ""


@pytest.mark.parametrize(
    ("duration_s", "is_fixed", "words"),
    [
        (3600, False, "in the last hour"),
        (900, False, "in the last 15 min"),
        (900, True, "in this range"),
    ],
)
def test_a_range_in_words(duration_s: float, is_fixed: bool, words: str) -> None:
    assert range_words(duration_s, is_fixed=is_fixed) == words


def test_the_verdict_names_the_phase_that_grew() -> None:
    reason = verdict([BURNING], CROWDED, CALM, SHOWN).reason
    assert "81% of it queue" in reason
    assert reason.endswith("They took 100 ms in the previous range: queue grew by 800 ms.")


def test_phases_that_leave_out_most_of_the_first_token_are_not_called_it() -> None:
    # vLLM's own traces: 43 ms on average, of which its API server took more than half.
    traced = CALM | {"queue_mean_s": 0.0, "prefill_mean_s": 0.0185}
    reason = verdict([], traced, EMPTY, SHOWN).reason
    assert reason.endswith("on average, queue and prefill took 18.5 ms, 100% of it prefill.")


def test_a_small_change_is_no_news_and_no_data_is_no_reason() -> None:
    assert "before" not in verdict([], CALM, CALM, SHOWN).reason
    assert "before" not in verdict([], CROWDED, EMPTY, SHOWN).reason
    assert "previous" not in verdict([], CROWDED, CALM | {"num_requests": 2}, SHOWN).reason
    assert verdict([], EMPTY, EMPTY, SHOWN).reason == ""


TTFT = "TTFT p50 · p95 · p99"


def test_tiles_without_data_say_so() -> None:
    tiles = {tile.label: tile for tile in headline_tiles(EMPTY, EMPTY)}
    assert tiles[TTFT].value == "no data"
    assert tiles["Errors"].value == "no data"
    assert tiles["Requests"].value == "0/s"
    assert {tile.change for tile in tiles.values()} == {""}
    assert not {"Shed", "Acceptance"} & tiles.keys(), "features that are off have no tile"


def test_tiles_compare_with_the_range_before() -> None:
    now = {**CROWDED, "ttft_p50_s": 1.5, "ttft_p99_s": 5.0, "shed_ratio": 0.1}
    tiles = {tile.label: tile for tile in headline_tiles(now, {**CALM, "acceptance_rate": 0.4})}
    assert tiles[TTFT].value.count(" · ") == 2
    assert tiles[TTFT].change == "p95 ▲ 13.3×"
    assert {"Shed", "Acceptance"} <= tiles.keys()


def test_an_itl_of_0_is_explained() -> None:
    for gap_s, note in ((0.0, "; tokens that arrive together have gaps of 0"), (0.02, "")):
        now = {**CALM, "itl_p99_p95_s": gap_s}
        (tile,) = (each for each in headline_tiles(now, CALM) if each.label == "ITL p95")
        assert tile.meaning == f"p95 across requests of each request's p99 gap{note}"


def test_an_slo_tile_says_its_three_numbers() -> None:
    tile = slo_tile(BURNING, [1.0, 22.4])
    assert tile.objective == "99% with TTFT ≤ 500 ms over 30d"
    assert (tile.sli, tile.budget_left, tile.burn) == ("99.5%", "50%", "22.4×")
    assert tile.alerts_at == "14.4×"
    assert (tile.level, tile.state) == ("bad", "firing: page")


def test_an_slo_on_sessions_says_what_a_good_one_is() -> None:
    done = slo_tile(slo(objective="session_e2e", threshold_s=300.0), [])
    assert done.objective == "99% of sessions done within 5 min over 30d"
    well = slo_tile(slo(objective="session_success", threshold_s=None), [])
    assert well.objective == "99% of sessions done well over 30d"


def test_a_calendar_budget_names_its_period() -> None:
    tile = slo_tile(slo(calendar_period="a calendar month"), [])
    assert tile.objective == "99% with TTFT ≤ 500 ms over a calendar month"
    spend = slo_tile(slo(objective="cost", total=300.0, calendar_period="2 calendar weeks"), [])
    assert spend.objective == "costs at most 300 over 2 calendar weeks"


def test_an_slo_without_data_is_neither_met_nor_full() -> None:
    tile = slo_tile(
        slo(
            state="no_data",
            objective="availability",
            threshold_s=None,
            sli=None,
            budget_left_ratio=None,
            window_burn_long=[None, None],
            scale=1 / 120,
        ),
        [],
    )
    assert tile.objective == "99% of requests answered over 30d (demo: time runs 120× faster)"
    assert (tile.sli, tile.budget_left, tile.burn) == ("no data", "no data", "no data")
    assert tile.budget_left_ratio is None
    assert tile.level == "unknown"


def test_the_burn_shown_is_that_of_the_pair_closest_to_alerting() -> None:
    assert closest_burn(slo(window_burn_long=[7.2, 5.9])) == (5.9, 6.0)
    assert closest_burn(slo(window_burn_long=[None, 0.1])) == (0.1, 6.0)
    assert closest_burn(slo(window_burn_long=[None, None])) == (None, 14.4)
    assert closest_burn(slo(window_burn_long=[], window_factor=[])) == (None, None)


def test_an_overspent_budget_is_said_in_words_and_drawn_empty() -> None:
    tile = slo_tile(slo(budget_left_ratio=-0.7), [])
    assert (tile.budget_left, tile.budget_left_ratio) == ("1.7× spent", 0.0)


def test_of_many_slos_the_worst_are_shown() -> None:
    def row(
        name: str, state: str = "ok", left: float | None = 1.0, severity: str | None = None
    ) -> Any:
        return {"slo": name, "state": state, "budget_left_ratio": left, "severity": severity}

    few = [row("b"), row("a", "firing", -1.0, "page")]
    assert worst_slos(few) == (few, 0)
    many = [row(f"ok-{i}", left=1 - i / 100) for i in range(30)]
    many += [row("none", "no_data", None), row("ticket", "firing", 0.5, "ticket")]
    many += [row("page", "firing", 0.9, "page")]
    shown, num_more = worst_slos(many, "ok-0")
    assert [each["slo"] for each in shown[:6]] == [
        "ok-0", "page", "ticket", "none", "ok-29", "ok-28",
    ]  # fmt: skip
    assert (len(shown), num_more) == (12, 21)
    removed = [row(f"removed-{i}", "stale", 0.1) for i in range(20)]
    assert worst_slos([*removed, *many], "ok-0") == (shown, num_more + 20)


def test_slos_that_share_a_limit_are_one_line_and_those_of_other_requests_none() -> None:
    groups = [slo(slo=f"fast/t{i}", selector={"tenant": f"t{i}"}) for i in range(2_000)]
    others = [
        slo(slo="slow", threshold_s=2.0, selector={"model": "big"}),
        slo(slo="faq", threshold_s=1.0, selector={"prompt_name": "faq", "prompt_version": "2"}),
        slo(slo="gaps", objective="itl", selector={}),
        slo(slo="none", threshold_s=None, selector={}),
    ]
    everyone = dict.fromkeys(("model", "tenant", "prompt", "slo_class"), "")
    assert drawn_limits([*groups, *others], "ttft", everyone) == [
        (0.5, "fast ≤ 500 ms"), (1.0, "faq ≤ 1 s"), (2.0, "slow ≤ 2 s"),
    ]  # fmt: skip
    chosen = everyone | {"tenant": "t7", "model": "small", "prompt": "faq@2"}
    assert drawn_limits([*groups, *others], "ttft", chosen) == [
        (0.5, "fast ≤ 500 ms"), (1.0, "faq ≤ 1 s"),
    ]  # fmt: skip
    same = [slo(slo=name, selector={}) for name in "abcd"]
    assert drawn_limits(same, "ttft", everyone) == [(0.5, "a, b and 2 more ≤ 500 ms")]
