"""What the demo prints of its figures."""

import pytest

from evenkeel_demo.screen import describe_crowds


@pytest.mark.parametrize(
    ("p95_s", "said"), [(7.1161, "7.12 s"), (0.2313, "231 ms"), (None, "no data")]
)
def test_how_chats_fared_is_told_in_units_for_people(p95_s: float | None, said: str) -> None:
    crowds = {
        "acting": {"chats": 45, "in_time_ratio": 0.69, "ttft_p95_s": p95_s},
        "watching": {"chats": 0, "in_time_ratio": None, "ttft_p95_s": None},
    }
    assert describe_crowds(crowds) == [
        f"chats during the crowd, control acting: 69% of 45 answered in time, TTFT p95 {said}"
    ]
