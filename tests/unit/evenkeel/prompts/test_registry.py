"""The prompt registry: what a reference means, and that kept texts cannot change unseen."""

from pathlib import Path

import pytest

from evenkeel.errors import ConfigurationError
from evenkeel.prompts.registry import Move, PromptRegistry, PromptVersion, digest


@pytest.fixture
def registry(tmp_path: Path) -> PromptRegistry:
    (tmp_path / "support.toml").write_text('system = "Be kind."\n')
    return PromptRegistry(tmp_path)


def promote(registry: PromptRegistry, text: str, label: str = "production") -> PromptVersion:
    prompt = PromptVersion("support", digest(text), text)
    registry.keep(prompt)
    registry.move("support", Move(1, label, prompt.version, "test", None))
    return prompt


def roll_back(registry: PromptRegistry) -> str:
    version = registry.previous("support", "production")
    assert version is not None
    registry.move("support", Move(2, "production", version, "back", None, is_rollback=True))
    return version


def test_references(registry: PromptRegistry) -> None:
    kept = promote(registry, 'Say "hello" \\ to {{ name }}\n—')
    for reference in ("support", "support@production", kept.label):
        assert registry.resolve(reference) == kept
    assert registry.resolve("support@draft").system == "Be kind."
    with pytest.raises(ConfigurationError, match=r"has no 'canary'; it has production, draft"):
        registry.resolve("support@canary")
    for reference in ("sales@draft", "sales", "sales@canary"):
        with pytest.raises(ConfigurationError, match="prompts here: support"):
            registry.resolve(reference)
    with pytest.raises(ConfigurationError, match="is not a prompt name"):
        registry.resolve("../secret@draft")


def test_a_file_that_is_no_prompt_hides_none(registry: PromptRegistry, tmp_path: Path) -> None:
    promote(registry, "Be kind.")
    for name in ("support copy.toml", "README.toml", ".support.toml", "labels/old labels.json"):
        (tmp_path / name).write_text("")
    assert registry.names() == ["support"]


@pytest.mark.parametrize("code", [*range(1, 32), 0x7F, 0x85, 0xA0, 0x2028, 0xFEFF, 0x1F600])
def test_a_text_with_odd_characters_can_be_read_again(registry: PromptRegistry, code: int) -> None:
    text = f"Be{chr(code)}kind."
    assert registry.resolve(promote(registry, text).label).system == text


def test_the_same_text_is_the_same_version(registry: PromptRegistry) -> None:
    assert promote(registry, "one") == promote(registry, "one", "canary")
    assert registry.versions("support") == [digest("one")]


def test_a_kept_text_that_was_edited_is_refused(registry: PromptRegistry, tmp_path: Path) -> None:
    kept = promote(registry, "one")
    (tmp_path / "versions" / "support" / f"{kept.version}.toml").write_text('system = "two"\n')
    with pytest.raises(ConfigurationError, match="was changed"):
        registry.resolve("support")


def test_going_back_twice_goes_back_two_versions(registry: PromptRegistry) -> None:
    one, two, _ = (promote(registry, text) for text in ("one", "two", "three"))
    assert roll_back(registry) == two.version
    assert roll_back(registry) == one.version
    assert registry.previous("support", "production") is None
    four = promote(registry, "four")
    assert registry.labels("support") == {"production": four.version}
    assert roll_back(registry) == one.version


@pytest.mark.parametrize("text", ["system = 1", "sistem = 'x'", "system = 'x'\nmore = 1", "["])
def test_a_wrong_draft_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(ConfigurationError, match=r"a\.toml"):
        PromptRegistry(tmp_path).draft("a")
