"""The committed checkpoint: found without torch, small, complete, and described by its card."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from evenkeel.errors import MissingPartError
from evenkeel_runtime.demo_model import checkpoint

MAX_BYTES = 5_000_000


def test_finding_it_imports_no_torch() -> None:
    code = (
        "import sys; from evenkeel_runtime.demo_model.checkpoint import target_path, draft_path; "
        "target_path(); draft_path(); "
        "sys.exit(bool({'torch', 'transformers', 'vllm'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_both_checkpoints_together_stay_within_5_mb() -> None:
    files = [*checkpoint.target_path().iterdir(), *checkpoint.draft_path().iterdir()]
    assert sum(file.stat().st_size for file in files) <= MAX_BYTES


def test_target_and_draft_share_the_tokenizer_and_the_context() -> None:
    target, draft = checkpoint.target_path(), checkpoint.draft_path()
    for name in ("tokenizer.json", "chat_template.jinja"):
        assert (target / name).read_bytes() == (draft / name).read_bytes()
    configs = [json.loads((folder / "config.json").read_text()) for folder in (target, draft)]
    for config in configs:
        assert config["architectures"] == ["LlamaForCausalLM"]
        assert config["max_position_embeddings"] == 4096
        assert config["dtype"] == "bfloat16"
        assert config["tie_word_embeddings"] is True
        assert config["vocab_size"] == configs[0]["vocab_size"]


def test_a_missing_checkpoint_says_how_to_train_it(
    tmp_path: Path,
) -> None:
    with pytest.raises(MissingPartError, match=r"train it with: python -m tools\.demo_model"):
        checkpoint.find(tmp_path, checkpoint.TARGET)


def test_the_card_tells_data_seed_and_accuracy_in_the_promised_range() -> None:
    card = tomllib.loads((checkpoint.FOLDER / "card.toml").read_text())
    manifest = tomllib.loads(
        (Path(__file__).parents[4] / "golden_datasets/support/support.toml").read_text()
    )
    assert card["dataset_sha256"] == manifest["sha256"], "retrain: the card is of other data"
    assert 0.75 <= card["accuracy"]["full"]["overall"] <= 0.95
    assert card["accuracy"]["full"]["extraction"] >= 0.7
    assert card["accuracy"]["short"]["extraction"] <= 0.2
    assert set(card["accuracy"]["full"]) == {*manifest["tags"], "overall"}
