"""Where drafts come from, in which order, and how strong each is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel_runtime.speculation.cached_draft import HandedAnswer
from evenkeel_runtime.speculation.draft_store import DraftStore
from evenkeel_runtime.speculation.sources import DraftSource, Trail, propose, rate_strength

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


def test_nothing_seen_is_nothing_drafted(store: DraftStore) -> None:
    trail, _ = trail_of(PROMPT, [51])
    assert propose(store, trail, 4, 4) is None


def test_a_prompt_answered_before_is_drafted_from_its_answer(store: DraftStore) -> None:
    store.add("a", PROMPT, ANSWER)
    trail, text = trail_of(PROMPT, ANSWER[:1])
    draft = propose(store, trail, 4, 4)
    assert draft is not None
    assert (draft.tokens, draft.source) == (ANSWER[1:5], DraftSource.RETRIEVAL)
    # It is followed from then on, and grows stronger with what agrees.
    text += ANSWER[1:5]
    longer = propose(store, trail, 4, 4)
    assert longer is not None
    assert longer.tokens == ANSWER[5:9]
    assert longer.strength <= draft.strength


def test_an_answer_that_goes_another_way_is_left_and_found_again(store: DraftStore) -> None:
    store.add("a", PROMPT, ANSWER)
    trail, text = trail_of(PROMPT, ANSWER[:1])
    assert propose(store, trail, 4, 4) is not None
    text += [99]
    assert propose(store, trail, 4, 4) is None
    text += ANSWER[4:6]
    again = propose(store, trail, 4, 4)
    assert again is not None
    assert again.tokens == ANSWER[6:10]
    assert again.strength == 3


def test_the_prompt_itself_is_a_source(store: DraftStore) -> None:
    trail, _ = trail_of([*PROMPT, 1, 2, 3, 4, 5, 6], [33, 34, 35, 36])
    draft = propose(store, trail, 3, 3)
    assert draft is not None
    assert (draft.tokens, draft.source, draft.strength) == ([37, 38, 39], DraftSource.PROMPT, 2)


def test_a_draft_that_came_with_the_request_goes_first_from_its_first_token(
    store: DraftStore,
) -> None:
    store.add("a", PROMPT, [51, 99, 98, 97, 96])
    trail, text = trail_of(PROMPT, ANSWER[:1], handed=ANSWER)
    draft = propose(store, trail, 4, 4)
    assert draft is not None
    assert (draft.tokens, draft.source) == (ANSWER[1:5], DraftSource.CACHE)
    text += [*ANSWER[1:3], 77, *ANSWER[4:6]]
    # One word differed; the rest of it agrees again.
    after = propose(store, trail, 4, 4)
    assert after is not None
    assert (after.tokens, after.source) == (ANSWER[6:10], DraftSource.CACHE)


def test_a_draft_that_has_nothing_to_do_with_the_answer_is_passed_over(store: DraftStore) -> None:
    store.add("a", PROMPT, ANSWER)
    trail, _ = trail_of(PROMPT, ANSWER[:2], handed=[901, 902, 903])
    draft = propose(store, trail, 4, 4)
    assert draft is not None
    assert draft.source is DraftSource.RETRIEVAL


def test_past_answers_go_before_the_guess_that_one_token_was_replaced(store: DraftStore) -> None:
    store.add("a", PROMPT, [51, 52, 53, 99, 98, 97, 96])
    trail, text = trail_of(PROMPT, [51, 52, 53, 99], handed=ANSWER)
    draft = propose(store, trail, 4, 4)
    assert draft is not None
    assert (draft.tokens, draft.source) == ([98, 97, 96], DraftSource.RETRIEVAL)
    text[-1:] = [77]
    trail, _ = trail_of(PROMPT, [51, 52, 53, 77], handed=ANSWER)
    guess = propose(store, trail, 4, 4)
    assert guess is not None
    assert (guess.tokens, guess.source) == (ANSWER[4:8], DraftSource.CACHE)


def test_no_room_for_a_draft_is_no_draft(store: DraftStore) -> None:
    store.add("a", PROMPT, ANSWER)
    trail, _ = trail_of(PROMPT, ANSWER[:1])
    assert propose(store, trail, 0, 0) is None
    assert propose(store, trail, -1, -1) is None


@pytest.mark.parametrize(
    ("agreed", "strength"), [(1, 3), (2, 3), (4, 2), (7, 2), (8, 1), (31, 1), (32, 0), (900, 0)]
)
def test_strength_grows_with_what_agreed(agreed: int, strength: int) -> None:
    assert rate_strength(agreed) == strength


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
        draft = propose(store, trail, 5, 5)
        if draft is not None:
            assert draft.tokens
            assert any(
                source[i : i + len(draft.tokens)] == draft.tokens
                for source in seen
                for i in range(len(source))
            )
