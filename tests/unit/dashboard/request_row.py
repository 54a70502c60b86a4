"""A request row for page tests."""

from typing import Any


def request(**changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "span_id": "aa",
        "status": "ok",
        "queue_s": 0.6,
        "prefill_s": 0.4,
        "decode_s": 1.1,
        "ttft_s": 1.0,
        "e2e_s": 2.1,
        "input_tokens": 1000,
        "cached_tokens": 600,
        "response_cache": None,
        "drafted_tokens": 15,
        "accepted_tokens": 7,
        "emission_time_s": [1.0, 1.02, 1.04, 1.06, 2.08, 2.10],
        "emission_tokens": [1, 3, 1, 2, 1, 3],
        "drafted_by_position": [5, 5],
        "accepted_by_position": [3, 1],
    }
    return row | changes
