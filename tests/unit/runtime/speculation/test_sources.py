"""Where drafts come from, and how many tokens match the text they are from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel_runtime.speculation.cached_draft import HandedAnswer
from evenkeel_runtime.speculation.draft_store import DraftStore
from evenkeel_runtime.speculation.sources import Draft, DraftSource, Trail, propose

PROMPT = [31, 32, 33, 34, 35, 36, 37, 38, 39, 40]
ANSWER = [51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62]


@pytest.fixture
def store() -> DraftStore:
    return DraftStore(64 * 1024, seed=1)


def trail_of(
    prompt: list[int], answer: list[int], handed: list[int] | None = None
) -> tuple[Trail, list[int]]:
    """A trail, and its text to be gone on with."""
    text = [*prompt, *answer]
    return Trail("a", text, len(prompt), HandedAnswer(handed or [])), text


def only(drafts: list[Draft]) -> Draft:
    (draft,) = drafts
    return draft


def test_nothing_seen_is_nothing_drafted(store: DraftStore) -> None:
    trail, _ = trail_of(PROMPT, [51])
    assert propose(store, trail, 4, 4) == []


def test_a_prompt_answered_before_is_drafted_from_its_answer(store: DraftStore) -> None:
    store.add("a", PROMPT, ANSWER)
    trail, text = trail_of(PROMPT, ANSWER[:1])
    draft = only(propose(store, trail, 4, 4))
    assert (draft.tokens, draft.source) == (ANSWER[1:5], DraftSource.RETRIEVAL)
    # It is followed from then on, and grows stronger with what agrees.
    text += ANSWER[1:5]
    longer = only(propose(store, trail, 4, 4))
    assert longer.tokens == ANSWER[5:9]
    assert (draft.run, longer.run) == (len(PROMPT), len(PROMPT) + 4)


def test_an_answer_that_goes_another_way_is_left_and_found_again(store: DraftStore) -> None:
    store.add("a", PROMPT, ANSWER)
    trail, text = trail_of(PROMPT, ANSWER[:1])
    assert propose(store, trail, 4, 4) != []
    text += [99]
    assert propose(store, trail, 4, 4) == []
    text += ANSWER[4:6]
    again = only(propose(store, trail, 4, 4))
    assert again.tokens == ANSWER[6:10]
    assert again.run == 2


def test_the_prompt_itself_is_a_source(store: DraftStore) -> None:
    trail, _ = trail_of([*PROMPT, 1, 2, 3, 4, 5, 6], [33, 34, 35, 36])
    draft = only(propose(store, trail, 3, 3))
    assert (draft.tokens, draft.source, draft.run) == ([37, 38, 39], DraftSource.PROMPT, 4)


def test_a_draft_that_came_with_the_request_goes_first_from_its_first_token(
    store: DraftStore,
) -> None:
    store.add("a", PROMPT, [51, 99, 98, 97, 96])
    trail, text = trail_of(PROMPT, ANSWER[:1], handed=ANSWER)
    draft = only(propose(store, trail, 4, 4))
    assert (draft.tokens, draft.source) == (ANSWER[1:5], DraftSource.CACHE)
    text += [*ANSWER[1:3], 77, *ANSWER[4:6]]
    # One word differed; the rest of it agrees again.
    after = only(propose(store, trail, 4, 4))
    assert (after.tokens, after.source) == (ANSWER[6:10], DraftSource.CACHE)


def test_a_draft_that_has_nothing_to_do_with_the_answer_is_passed_over(store: DraftStore) -> None:
    store.add("a", PROMPT, ANSWER)
    trail, _ = trail_of(PROMPT, ANSWER[:2], handed=[901, 902, 903])
    draft = only(propose(store, trail, 4, 4))
    assert draft.source is DraftSource.RETRIEVAL


def test_after_a_difference_past_answers_are_offered_beside_the_cached_one(
    store: DraftStore,
) -> None:
    store.add("a", PROMPT, [51, 52, 53, 99, 98, 97, 96])
    trail, _ = trail_of(PROMPT, [51, 52, 53, 99], handed=ANSWER)
    past, guess = propose(store, trail, 4, 4)
    assert (past.tokens, past.source, past.run) == ([98, 97, 96], DraftSource.RETRIEVAL, 4)
    assert (guess.tokens, guess.source, guess.run) == (ANSWER[4:8], DraftSource.CACHE, 0)
    trail, _ = trail_of(PROMPT, [51, 52, 53, 77], handed=ANSWER)
    assert only(propose(store, trail, 4, 4)).source is DraftSource.CACHE


def test_the_end_of_a_prompt_is_no_match_because_all_prompts_end_alike(store: DraftStore) -> None:
    store.add("a", [*PROMPT, 1], ANSWER)
    trail, _ = trail_of([90, *PROMPT[1:], 1], ANSWER[:1])
    draft = only(propose(store, trail, 4, 4))
    assert (draft.tokens, draft.run) == (ANSWER[1:5], 1)


def test_no_room_for_a_draft_is_no_draft(store: DraftStore) -> None:
    store.add("a", PROMPT, ANSWER)
    trail, _ = trail_of(PROMPT, ANSWER[:1])
    assert propose(store, trail, 0, 0) == []
    assert propose(store, trail, -1, -1) == []


words = st.lists(st.integers(0, 3), min_size=1, max_size=30)


@given(st.lists(words, max_size=6), words, words, st.lists(st.integers(0, 3), max_size=20))
def test_every_draft_is_text_that_was_seen(
    past: list[list[int]], prompt: list[int], answer: list[int], handed: list[int]
) -> None:
    store = DraftStore(64 * 1024, seed=1)
    for text in past:
        store.add("a", [], text)
    trail, text = trail_of(prompt, [], handed)
    seen = [*past, handed, [*prompt, *answer]]
    for token in answer:
        text.append(token)
        for draft in propose(store, trail, 5, 5):
            assert draft.tokens
            assert any(
                source[i : i + len(draft.tokens)] == draft.tokens
                for source in seen
                for i in range(len(source))
            )
