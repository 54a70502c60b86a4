"""Results are cached for as long as each query sets."""

import inspect

from evenkeel_dashboard.frame import reading


def test_no_two_lifetimes_share_a_name() -> None:
    # Streamlit keys a cache by the function's name and source, and starts a new one if the same
    # function comes with another lifetime: two would empty each other at each reading.
    kept = [v for v in vars(reading).values() if hasattr(v, "clear") and hasattr(v, "__wrapped__")]
    sources = [inspect.getsource(inspect.unwrap(function)) for function in kept]
    assert len(kept) >= 6
    assert len(set(sources)) == len(sources)
