"""What the demo prints of its figures."""

import io
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
