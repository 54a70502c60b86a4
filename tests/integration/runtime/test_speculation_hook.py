"""The speculative scheduler on vLLM's real scheduling, with made-up tokens."""

import logging
from pathlib import Path
from typing import Any

import pytest

from evenkeel_runtime.wire.drafts import REPORT_KEY
from tests.fixtures import random_model
from tests.fixtures.fixed_length import FixedLength
from tests.fixtures.real_scheduler import SchedulerBox, build_scheduler

PROMPT = [3 + i for i in range(20)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_model.build(tmp_path_factory.mktemp("model"), hidden=64, layers=1)


@pytest.fixture
def hooked(model: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("EVENKEEL_SPECULATION_REPORTS", "true")
    return lambda **options: build(model, **options)


def build(model: Path, drafts: int = 4, is_async: bool = False) -> SchedulerBox:
    from evenkeel_runtime.adapter.speculative_scheduler import SpeculativeScheduler

    box = build_scheduler(SpeculativeScheduler, model, drafts=drafts, is_async=is_async)
    if getattr(box.scheduler, "evenkeel_speculation", None) is not None:
        box.scheduler.evenkeel_speculation.controller = FixedLength(drafts)
    # Drafts are the scheduler's own; what a worker would say is nothing.
    box.drafts = 0
    return box


def run(box: SchedulerBox, request_id: str, max_tokens: int = 12) -> tuple[list[int], Any]:
    """Answer one request; return the drafted tokens of each step, and its last output."""
    box.add(request_id, PROMPT, max_tokens)
    drafted, last = [], None
    for _ in range(max_tokens + 2):
        output = box.scheduler.schedule()
        if not output.num_scheduled_tokens:
            break
        drafted.append(sum(map(len, output.scheduled_spec_decode_tokens.values())))
        outputs = box.scheduler.update_from_output(output, box.make_output(output))
        for made in outputs[0].outputs:
            last = made
    return drafted, last


def test_each_request_gets_its_own_length_and_the_report_says_so(hooked: Any) -> None:
    box = hooked()
    drafted, last = run(box, "a-00000001")
    # The made-up tokens are all one, so the text itself is a source, of what follows: one token.
    assert max(drafted) == 1
    assert last.finish_reason is not None
    drafts, accepted = last.kv_transfer_params[REPORT_KEY]["counts"]["prompt"]
    assert sum(drafts) == sum(drafted)
    assert sum(accepted) > 0
    again, _ = run(box, "b-00000002")
    # The same prompt was answered by now: its answer is followed, four tokens a step.
    assert again[1] == 4


def test_a_failing_hook_is_one_error_and_requests_go_on(
    hooked: Any, caplog: pytest.LogCaptureFixture
) -> None:
    box = hooked()

    class Broken(FixedLength):
        def begin(self, num_requests: int) -> int:
            raise RuntimeError("out of luck")

    box.scheduler.evenkeel_speculation.controller = Broken(4)
    with caplog.at_level(logging.WARNING, "evenkeel_runtime"):
        drafted, last = run(box, "a-00000001")
        assert set(drafted) == {0}
        assert last.finish_reason is not None
        assert last.kv_transfer_params[REPORT_KEY]["engine"] == {"errors": 1}
        _, second = run(box, "b-00000002")
    assert second.kv_transfer_params is None
    said = [r for r in caplog.records if "drafting stopped after an error" in r.message]
    assert len(said) == 1
    assert "out of luck" in said[0].getMessage()


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"drafts": 0}, id="no speculative configuration"),
        pytest.param({"is_async": True}, id="asynchronous scheduling"),
    ],
)
def test_a_configuration_it_cannot_draft_in_is_one_warning(
    hooked: Any, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "evenkeel_runtime.adapter.speculative_scheduler"):
        box = hooked(**options)
        if not options.get("is_async"):
            drafted, last = run(box, "a-00000001")
            assert set(drafted) == {0}
            assert last.finish_reason is not None
        else:
            # Fully built, and scheduling.
            box.add("a-00000001", PROMPT)
            assert box.scheduler.schedule().total_num_scheduled_tokens == len(PROMPT)
    said = [r for r in caplog.records if r.name == "evenkeel_runtime.adapter.speculative_scheduler"]
    assert len(said) == 1


def test_a_damaged_store_is_counted(
    hooked: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "answers"
    path.write_bytes(b"not answers")
    monkeypatch.setenv("EVENKEEL_SPECULATION_STORE_FILE", str(path))
    _, last = run(hooked(), "a-00000001")
    assert last.kv_transfer_params[REPORT_KEY]["engine"]["errors"] == 1
