"""The rewordings: complete, distinct, and near misses that need another answer."""

from golden_datasets.support.knowledge import letters
from golden_datasets.support.rewordings import read_near_misses, read_rewordings


def test_each_question_has_several_wordings_that_no_other_question_has() -> None:
    questions = read_rewordings()
    assert len(questions) >= 40
    assert all(len(q.trained) >= 5 and len(q.unseen) >= 6 for q in questions)
    texts = [letters(text) for q in questions for text in q.wordings]
    assert len(texts) == len(set(texts)) >= 500
    assert not any("{" in text for text in [*texts, *(q.answer for q in questions)])


def test_a_near_miss_has_none_of_the_answers_of_what_it_is_like() -> None:
    questions, near_misses = read_rewordings(), read_near_misses()
    known = {letters(text) for q in questions for text in q.wordings}
    assert len(near_misses) >= 35
    for miss in near_misses:
        assert letters(miss.text) not in known
        assert miss.answer not in {q.answer for q in questions if q.intent == miss.like}
