"""Past answers: what is returned did follow the text before it, in bounded memory."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel_runtime.speculation.draft_file import load_store, save_store, save_store_aside
from evenkeel_runtime.speculation.draft_store import DraftStore

SMALL_BYTES = 64 * 1024
VOCABULARY = 1000
PROMPT = [7, 8, 9, 10, 11, 12, 13, 14, 15]
ANSWER = [21, 22, 23, 24, 25, 26]

tokens = st.integers(min_value=0, max_value=5)
answers = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),
        st.lists(tokens, max_size=12),
        st.lists(tokens, min_size=1, max_size=40),
    ),
    max_size=12,
)


def contains(text: list[int], part: list[int]) -> bool:
    return any(text[i : i + len(part)] == part for i in range(len(text) - len(part) + 1))


@given(answers, st.lists(tokens, min_size=1, max_size=12), st.sampled_from(["a", "b"]))
def test_what_is_found_did_follow_these_tokens_in_an_answer_of_the_same_owner(
    past: list[tuple[str, list[int], list[int]]], recent: list[int], owner: str
) -> None:
    store = DraftStore(SMALL_BYTES, seed=1)
    for whose, prompt, answer in past:
        store.add(whose, prompt, answer)
    match = store.find(owner, recent)
    if match is None:
        return
    proposal = store.continuation(match.position, 6)
    seen = recent[-match.length :] + proposal
    assert any(contains(prompt + answer, seen) for whose, prompt, answer in past if whose == owner)


@settings(max_examples=30)
@given(st.lists(st.lists(tokens, min_size=1, max_size=60), min_size=30, max_size=60))
def test_a_full_store_keeps_its_size_and_never_returns_overwritten_text(
    past: list[list[int]],
) -> None:
    store = DraftStore(1, seed=2)
    size_bytes = store.size_bytes
    texts = []
    for i, answer in enumerate(past):
        unique = [100 + i, *answer]
        texts.append(unique)
        store.add("a", [], unique)
        match = store.find("a", unique[:2])
        if match is not None:
            proposal = store.continuation(match.position, 8)
            assert any(contains(text, unique[:2] + proposal) for text in texts)
    assert store.size_bytes == size_bytes
    assert store.num_tokens <= store.capacity_tokens


def test_the_longest_agreeing_text_wins_over_a_later_shorter_one() -> None:
    store = DraftStore(SMALL_BYTES, seed=1)
    store.add("a", PROMPT, ANSWER)
    store.add("a", [], [98, 23, 24, 77, 78])
    match = store.find("a", [*PROMPT[-2:], *ANSWER[:4]])
    assert match is not None
    assert store.continuation(match.position, 2) == [25, 26]


def test_the_latest_answer_to_the_same_prompt_goes_on_from_its_first_token() -> None:
    store = DraftStore(SMALL_BYTES, seed=1)
    store.add("a", PROMPT, [21, 99, 98])
    store.add("a", PROMPT, ANSWER)
    match = store.find_answer("a", PROMPT, 21)
    assert match is not None
    assert store.continuation(match.position, 9) == ANSWER[1:]
    assert store.find_answer("a", PROMPT, 22) is None
    assert store.find_answer("b", PROMPT, 21) is None


def test_answers_of_one_tenant_are_not_found_by_another() -> None:
    store = DraftStore(SMALL_BYTES, seed=1)
    store.add("a", PROMPT, ANSWER)
    assert store.find("a", ANSWER[:2]) is not None
    assert store.find("b", ANSWER[:2]) is None


def test_old_answers_make_room_for_new_ones() -> None:
    store = DraftStore(1, seed=3)
    store.add("a", [], [5000, 5001, 5002, 5003])
    for i in range(store.capacity_tokens // 100 + 1):
        store.add("a", [], list(range(i * 100, i * 100 + 99)))
    assert store.find("a", [5000, 5001]) is None
    newest = store.capacity_tokens // 100 * 100
    assert store.find("a", [newest, newest + 1]) is not None


def test_an_answer_longer_than_the_store_keeps_its_beginning() -> None:
    store = DraftStore(1, seed=3)
    store.add("a", [], list(range(10 * store.capacity_tokens)))
    assert store.find("a", [0, 1]) is not None
    assert store.find("a", [store.capacity_tokens, store.capacity_tokens + 1]) is None


def test_a_saved_store_finds_the_same_after_a_restart(tmp_path: Path) -> None:
    store = DraftStore(SMALL_BYTES)
    store.add("a", PROMPT, ANSWER)
    path = tmp_path / "deep" / "store"
    assert save_store(store, path)
    assert path.stat().st_mode & 0o077 == 0
    again = load_store(path, SMALL_BYTES, VOCABULARY)
    assert again is not None
    match = again.find("a", ANSWER[:3])
    assert match is not None
    assert again.continuation(match.position, 9) == ANSWER[2 + 1 :]
    assert again.num_answers == 1


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        pytest.param(lambda b: b[:-1] + bytes([b[-1] ^ 1]), "checksum", id="a flipped bit"),
        pytest.param(lambda b: b[: len(b) // 2], "checksum", id="cut off"),
        pytest.param(lambda b: b"PK" + b, "not a past-answers file", id="another file"),
        pytest.param(lambda b: b"", "not a past-answers file", id="an empty file"),
        pytest.param(lambda b: b"EKDS1\n{}\n", "crc", id="a head without a checksum"),
    ],
)
def test_a_damaged_file_is_one_warning_and_a_fresh_start(
    damage: object, said: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = DraftStore(SMALL_BYTES)
    store.add("a", PROMPT, ANSWER)
    path = tmp_path / "store"
    save_store(store, path)
    assert callable(damage)
    path.write_bytes(damage(path.read_bytes()))
    assert load_store(path, SMALL_BYTES, VOCABULARY) is None
    assert len(caplog.records) == 1
    assert said in caplog.text


def test_a_store_of_another_size_is_learned_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "store"
    save_store(DraftStore(SMALL_BYTES), path)
    assert load_store(path, 4 * SMALL_BYTES, VOCABULARY) is None
    assert "starting with an empty store" in caplog.text


def test_answers_of_a_model_with_more_tokens_are_not_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = DraftStore(SMALL_BYTES)
    store.add("a", PROMPT, [VOCABULARY])
    save_store_aside(store, tmp_path / "store").join()
    assert load_store(tmp_path / "store", SMALL_BYTES, VOCABULARY) is None
    assert "outside this model's vocabulary" in caplog.text
    assert load_store(tmp_path / "store", SMALL_BYTES, VOCABULARY + 1) is not None


def test_no_file_is_no_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert load_store(tmp_path / "none", SMALL_BYTES, VOCABULARY) is None
    assert caplog.records == []


def test_a_folder_that_cannot_be_written_is_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    assert not save_store(DraftStore(SMALL_BYTES), tmp_path / "file" / "store")
    assert len(caplog.records) == 1
