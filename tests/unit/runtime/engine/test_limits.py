"""Control's limits on steps, put on something that has what vLLM's scheduler has."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from evenkeel_runtime.engine.limits import StepLimiter
from evenkeel_runtime.wire.limits import EngineLimits, LimitsFile


def make_scheduler(threshold: int, is_chunked: bool = True) -> SimpleNamespace:
    return SimpleNamespace(
        scheduler_config=SimpleNamespace(
            long_prefill_token_threshold=threshold, enable_chunked_prefill=is_chunked
        ),
        adaptive_long_prefill_threshold=True,
        max_num_scheduled_tokens=2048,
    )


@pytest.mark.parametrize(
    ("threshold", "ratio", "expected"),
    [(0, 0.25, 512), (256, 0.25, 256), (1024, 0.25, 512), (0, 0.001, 32)],
)
def test_a_prompts_share_of_a_step_is_capped_and_given_back(
    tmp_path: Path, threshold: int, ratio: float, expected: int
) -> None:
    scheduler = make_scheduler(threshold)
    file = LimitsFile.create(tmp_path / "limits")
    limiter = StepLimiter(scheduler, tmp_path / "limits")
    limiter.apply()
    assert scheduler.scheduler_config.long_prefill_token_threshold == threshold
    assert scheduler.adaptive_long_prefill_threshold

    file.write(EngineLimits(prefill_ratio=ratio))
    limiter.apply()
    assert scheduler.scheduler_config.long_prefill_token_threshold == expected
    assert not scheduler.adaptive_long_prefill_threshold

    file.write(EngineLimits())
    limiter.apply()
    assert scheduler.scheduler_config.long_prefill_token_threshold == threshold
    assert scheduler.adaptive_long_prefill_threshold


def test_prompts_that_vllm_must_not_cut_are_not_capped(tmp_path: Path) -> None:
    scheduler = make_scheduler(0, is_chunked=False)
    file = LimitsFile.create(tmp_path / "limits")
    limiter = StepLimiter(scheduler, tmp_path / "limits")
    file.write(EngineLimits(prefill_ratio=0.25, draft_ratio=0.0))
    limiter.apply()
    assert scheduler.scheduler_config.long_prefill_token_threshold == 0
    assert scheduler.adaptive_long_prefill_threshold
    assert limiter.limits.draft_ratio == 0
