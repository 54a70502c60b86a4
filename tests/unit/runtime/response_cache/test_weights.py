"""Which weights and template an answer is from: those of a path or name may be replaced."""

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.sampling_params import SamplingParams

from evenkeel_runtime.response_cache.hit_class import KNOWN_WORDS, HitClass
from evenkeel_runtime.response_cache.replays import PendingReplay
from evenkeel_runtime.response_cache.settings_file import HitMode
from evenkeel_runtime.response_cache.weights import Weights, describe_model, hash_files
from evenkeel_runtime.wire.caller import Caller
from tests.unit.runtime.response_cache.test_slow_embedding import Server, SlowEncoder


def make_folder(folder: Path, weights: bytes = bytes(1 << 20)) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "model.safetensors").write_bytes(weights)
    (folder / "config.json").write_text("{}")
    return folder


def engine(path: Path | str, commit: str | None = None, tokenizer: Path | None = None) -> object:
    config = SimpleNamespace(
        model=str(path),
        revision=None,
        dtype="bf16",
        quantization=None,
        tokenizer=str(tokenizer or path),
        hf_config=SimpleNamespace(_commit_hash=commit),
    )
    return SimpleNamespace(model_config=config)


def test_other_weights_at_the_same_path_are_another_model(tmp_path: Path) -> None:
    before = describe_model(engine(make_folder(tmp_path / "m")))
    assert describe_model(engine(make_folder(tmp_path / "m"))) == before
    trained = describe_model(engine(make_folder(tmp_path / "m", b"\1" * (1 << 20))))
    (tmp_path / "m" / "chat_template.jinja").write_text("{{ messages }}")
    assert len({before, trained, describe_model(engine(tmp_path / "m"))}) == 3


def test_a_copy_elsewhere_has_the_same_hash(tmp_path: Path) -> None:
    one, other = make_folder(tmp_path / "one"), make_folder(tmp_path / "other")
    (other / "train.log").write_text("not read")
    assert hash_files(one) == hash_files(other)


def test_a_name_on_a_hub_is_told_by_its_commit() -> None:
    assert describe_model(engine("org/model", "a1")) != describe_model(engine("org/model", "b2"))
    assert describe_model(engine("org/model")) == "org/model|None|bf16|None"


def test_another_tokenizer_is_another_model(tmp_path: Path) -> None:
    model, other = make_folder(tmp_path / "m"), make_folder(tmp_path / "t", b"x")
    assert describe_model(engine(model)) != describe_model(engine(model, tokenizer=other))


def adapter(path: Path | str) -> SimpleNamespace:
    return SimpleNamespace(lora_name="support", lora_path=str(path))


def test_an_adapter_is_told_by_its_files(tmp_path: Path) -> None:
    weights = Weights(engine("org/model"))
    first, second = make_folder(tmp_path / "1"), make_folder(tmp_path / "2", b"2")
    loaded = adapter(first)
    described = [weights.describe(loaded), weights.describe(adapter(second)), weights.model]
    assert weights.describe(None) == weights.model
    assert weights.describe(adapter(first)) == described[0]
    make_folder(first, b"trained on")
    assert weights.describe(adapter(first)) not in described
    assert len(set(described)) == 3


def test_an_adapter_from_a_hub_is_another_one_whenever_it_is_loaded() -> None:
    weights = Weights(engine("org/model"))
    loaded, again = adapter("org/lora"), adapter("org/lora")
    assert weights.describe(loaded) == weights.describe(loaded) != weights.describe(again)


def open_server(mode: HitMode) -> Server:
    encoder = SlowEncoder()
    encoder.opened.set()
    return Server(mode, encoder, 10)


@pytest.mark.parametrize("mode", [HitMode.SERVE, HitMode.DRAFT])
async def test_an_adapter_that_is_loaded_anew_answers_itself(mode: HitMode, tmp_path: Path) -> None:
    server = open_server(mode)
    asked = "How do I return an item?"
    for number in range(2):
        server.options = {"lora_request": adapter(make_folder(tmp_path, bytes([number])))}
        await server.ask(asked)
        await server.settle()
        await server.ask(asked)
    seen = [seen.response_cache for seen in server.notebook.seen]
    assert seen == ["miss", "exact", "miss", "exact"]
    await server.cache.close()


@pytest.mark.parametrize("mode", [HitMode.SERVE, HitMode.DRAFT])
async def test_a_template_that_says_another_day_has_other_answers(mode: HitMode) -> None:
    server = open_server(mode)
    for day in ("1 May", "2 May"):
        server.template = f"Today is {day}.\n{{}}"
        await server.ask("How do I return an item?")
        await server.settle()
        await server.ask("How do I return an item?")
        await server.ask("Please, how can I return the items?")
        await server.settle()
    seen = [seen.response_cache for seen in server.notebook.seen]
    assert seen == ["miss", "exact", "draft"] * 2
    await server.cache.close()


@pytest.mark.parametrize("mode", [HitMode.SERVE, HitMode.DRAFT])
async def test_weights_that_were_changed_while_serving_answer_themselves(mode: HitMode) -> None:
    server = open_server(mode)
    for _ in range(2):
        await server.ask("How do I return an item?")
        await server.settle()
        await server.ask("How do I return an item?")
        await server.ask("Please, how can I return the items?")
        await server.settle()
        server.engine.record_weight_change()
        assert not server.cache.controls.items()
    seen = [seen.response_cache for seen in server.notebook.seen]
    assert seen == ["miss", "exact", "draft"] * 2
    await server.cache.close()


async def test_an_answer_during_which_the_weights_changed_is_kept_for_nobody() -> None:
    """It is of both; those of the first are loaded again by a restart, or by another server."""
    server = open_server(HitMode.SERVE)
    generate = server.model.generate

    async def generate_meanwhile(*_: Any, **__: Any) -> AsyncIterator[Any]:
        async for output in generate():
            server.engine.record_weight_change()
            yield output

    server.model.generate = generate_meanwhile  # type: ignore[method-assign]
    await server.ask("How do I return an item?")
    await server.settle()
    assert server.cache.counts.stored == 0
    assert server.cache.counts.not_kept == {"deleted_meanwhile": 1}
    await server.cache.close()


@pytest.mark.parametrize("is_running", [False, True])
async def test_a_replay_of_an_answer_of_other_weights_says_nothing(is_running: bool) -> None:
    server = open_server(HitMode.SERVE)
    policy = server.cache.policy.routes[0]
    near: Any = SimpleNamespace(
        hit_class=HitClass(KNOWN_WORDS, 0.9, 0.4),
        similarity=0.9,
        entry=SimpleNamespace(text="Never.", token_ids=(1,)),
    )
    question: Any = SimpleNamespace(policy=policy)
    replay: Any = PendingReplay("r", question, near, "p", SamplingParams(), {}, Caller(), True, 1.0)
    generate = server.model.generate

    async def generate_meanwhile(*_: Any, **__: Any) -> AsyncIterator[Any]:
        server.engine.record_weight_change()
        async for output in generate():
            yield output

    if is_running:
        server.model.generate = generate_meanwhile  # type: ignore[method-assign]
    else:
        server.engine.record_weight_change()
    wrong_hits = server.cache.control(policy).wrong_hits
    wrong_hits.num_pending = 1
    await server.engine.replays.run(replay)
    evidence = server.cache.control(policy)
    assert evidence.wrong_hits.num_detected == 0
    assert all(found.seen == 0 for found in evidence.classes)
    assert server.cache.counts.verdicts == {}
    # It was never pending for the evidence of the weights since.
    assert evidence.wrong_hits.num_pending == int(not is_running)
    await server.cache.close()


def test_flags_with_which_the_same_weights_answer_otherwise_are_another_model() -> None:
    described = {describe_model(engine("org/model"))}
    for name, value in [("hf_overrides", {"rope_theta": 1}), ("logits_processors", ["a:B"])]:
        flagged: Any = engine("org/model")
        setattr(flagged.model_config, name, value)
        described.add(describe_model(flagged))
    assert len(described) == 3
