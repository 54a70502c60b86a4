"""What the demo prints of its figures."""

import io
import time
from typing import Any

import pytest

from evenkeel_demo.screen import Frame, Screen, describe_crowds
from evenkeel_demo.traffic import ClientCounters, DemoPhase


@pytest.mark.parametrize(
    ("p95_s", "said"), [(7.1161, "7.12 s"), (0.2313, "231 ms"), (None, "no data")]
)
def test_how_chats_fared_is_told_in_units_for_people(p95_s: float | None, said: str) -> None:
    crowds: dict[str, dict[str, Any]] = {
        "acting": {"chats": 45, "in_time_ratio": 0.69, "ttft_p95_s": p95_s},
        "watching": {"chats": 0, "in_time_ratio": None, "ttft_p95_s": None},
    }
    assert describe_crowds(crowds) == [
        f"chats during the crowd, control acting: 69% of 45 answered in time, TTFT p95 {said}"
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_stays_on_the_terminal_does_not_say_how_to_end_what_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    frame = Frame(12.0, DemoPhase.HEALTHY, ClientCounters(), (), "", {}, None)
    with Screen(stream) as screen:
        screen.draw(frame)
        assert "Ctrl-C ends" in stream.getvalue()
    assert "Ctrl-C" not in stream.getvalue().rpartition("healthy")[2]


def test_a_line_is_said_as_it_is() -> None:
    stream = io.StringIO()
    Screen(stream).say("data and logs: /tmp/[a]/b[/c] :smile:")
    assert stream.getvalue() == "data and logs: /tmp/[a]/b[/c] :smile:\n"


def test_the_report_says_when_an_alert_fired() -> None:
    stream = io.StringIO()
    quantiles = {"p50": 0.1, "p95": 0.2, "p99": 0.3}
    counts = (
        "requests", "errors", "cancelled", "spans_stored", "answered_from_cache",
        "verified_from_cache", "compressed", "feedback", "live_evaluations",
    )  # fmt: skip
    alert = {"at": 0.0, "status": "firing", "slo": "support-ttft", "severity": "page"}
    Screen(stream).show_report(
        {
            **dict.fromkeys(counts, 18_254),
            "ttft_s": quantiles,
            "itl_s": {"p50": 0.0, "p95": 0.0031, "p99": 0.02},
            "tokens_per_s": 1_550.0,
            "cached_token_ratio": 0.471,
            "acceptance_rate": None,
            "crowds": {},
            "comparison_summary": "A/B of prompt versions 1 and 2: not started",
            "alerts": [alert],
            "data_dir": "/tmp/demo",
        }
    )
    begun = time.strftime("%H:%M:%S", time.localtime(0))
    assert f"{begun}  alert firing: support-ttft (page)" in stream.getvalue()
    assert "18,254" in stream.getvalue()
    cells = " ".join(stream.getvalue().replace("│", " ").split())
    assert "0 µs / 3.1 ms / 20 ms (tokens that arrive together have gaps of 0)" in cells
    assert cells.count("gaps of 0") == 1
