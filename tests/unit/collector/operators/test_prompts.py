"""Labels move only after a run that passed, or for a reason; both are kept."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from evenkeel.errors import ConfigurationError, EvenkeelError
from evenkeel.prompts.registry import PromptRegistry, PromptVersion, digest
from evenkeel_collector.operators.prompts import Promote, Rollback, listing, promote, roll_back

OLD, NEW = "You answer.", "You answer in one word."
NOW_NS = 1_700_000_000 * 10**9


@pytest.fixture
def registry(tmp_path: Path) -> PromptRegistry:
    found = PromptRegistry(tmp_path)
    found.keep(PromptVersion("support", digest(OLD), OLD))
    (tmp_path / "support.toml").write_text(f'system = "{NEW}"')
    order = Promote(by="ann", prompt="support", version=digest(OLD), reason="the first")
    promote(found, order, NOW_NS, no_run)
    return found


def no_run(run_id: str) -> Mapping[str, Any]:
    raise AssertionError(f"{run_id} was asked for")


def run(**changes: Any) -> dict[str, Any]:
    return {
        "baseline_texts": [digest(OLD)],
        "candidate_texts": [digest(NEW)],
        "num_gates": 1,
        "run_verdicts": ["no worse"],
        "headlines": [],
        "other_changes": [],
    } | changes


def test_the_draft_is_kept_when_it_is_promoted(registry: PromptRegistry) -> None:
    order = Promote(by="ann", prompt="support", version=digest(NEW), run_id="r1")
    done = promote(registry, order, NOW_NS, lambda _: run())
    assert done == {"label": "production", "is": digest(NEW), "was": digest(OLD)}
    assert registry.resolve("support").system == NEW
    move = registry.history("support")[-1]
    assert (move.reason, move.run_id) == ("passed run r1 (ann)", "r1")
    back = roll_back(registry, Rollback(by="bob", prompt="support"), NOW_NS)
    assert back == {"label": "production", "is": digest(OLD), "was": digest(NEW)}
    with pytest.raises(ConfigurationError, match="no earlier version to roll back to"):
        roll_back(registry, Rollback(by="bob", prompt="support"), NOW_NS)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"run_verdicts": ["regressed"]}, "pass: regressed", id="a regression"),
        pytest.param(
            {"run_verdicts": ["regressed"], "headlines": ["regressed: always wrong now: q7"]},
            "always wrong now: q7",
            id="the run's own reason",
        ),
        pytest.param({"run_verdicts": ["inconclusive"]}, "inconclusive", id="it could not tell"),
        pytest.param({"run_verdicts": ["could not measure"]}, "measure", id="too few answers"),
        pytest.param({"run_verdicts": []}, "run it again", id="of an earlier version"),
        pytest.param({"num_gates": 0}, "it has no gate", id="no gate"),
        pytest.param({"candidate_texts": ["0123456789ab"]}, "other than", id="other than"),
        pytest.param({"other_changes": ["model, sampling"]}, "model, sampling", id="more"),
        pytest.param({"candidate_texts": []}, "other than", id="no such run"),
        pytest.param({"baseline_texts": ["0123456789ab"]}, "in use", id="another baseline"),
    ],
)
def test_a_run_that_proves_nothing_moves_nothing(
    registry: PromptRegistry, changes: dict[str, Any], reason: str
) -> None:
    order = Promote(by="ann", prompt="support", version=digest(NEW), run_id="r1")
    with pytest.raises(EvenkeelError, match=reason):
        promote(registry, order, NOW_NS, lambda _: run(**changes))
    assert registry.labels("support") == {"production": digest(OLD)}


@pytest.mark.parametrize(
    ("version", "why", "reason"),
    [
        pytest.param(digest(NEW), " ", "needs a passing run", id="neither a run nor a reason"),
        pytest.param(
            "0123456789ab", "x", "neither a stored version nor the draft", id="an unknown version"
        ),
    ],
)
def test_a_promotion_that_makes_no_sense(
    registry: PromptRegistry, version: str, why: str, reason: str
) -> None:
    order = Promote(by="ann", prompt="support", version=version, reason=why)
    with pytest.raises(ConfigurationError, match=reason):
        promote(registry, order, NOW_NS, no_run)


def test_what_a_label_means_already_stays_without_a_line(registry: PromptRegistry) -> None:
    order = Promote(by="ann", prompt="support", version=digest(OLD), reason="again")
    done = promote(registry, order, NOW_NS, no_run)
    assert done == {"label": "production", "is": digest(OLD), "was": digest(OLD)}
    assert len(registry.history("support")) == 1


def test_the_listing_has_texts_and_what_labels_go_back_to(
    registry: PromptRegistry, tmp_path: Path
) -> None:
    order = Promote(by="ann", prompt="support", version=digest(NEW), reason="hotfix")
    promote(registry, order, NOW_NS, no_run)
    (found,) = listing(tmp_path)
    assert found["goes_back_to"] == {"production": digest(OLD)}
    assert {v["system"] for v in found["versions"]} == {OLD, NEW}
    assert found["moves"][0]["reason"] == "forced: hotfix (ann)"
