"""Pages of rows, and the links to those before and after."""

import pytest

from evenkeel_dashboard.frame.paging import page_number, pages_beside, rows_or_first_page


@pytest.mark.parametrize(
    ("text", "number"),
    [("", 1), ("2", 2), ("0", 1), ("-3", 1), ("two", 1), ("٣", 1), ("99999999", 1)],
)
def test_the_page_of_the_address(text: str, number: int) -> None:
    assert page_number(text) == number


def test_pages_before_and_after() -> None:
    assert pages_beside("explore", {}, 0, 40, 2848) == ("", "./explore?page=2")
    assert pages_beside("explore", {"page": "2", "order": "ttft"}, 40, 40, 100) == (
        "./explore?order=ttft",
        "./explore?page=3&order=ttft",
    )
    assert pages_beside("explore", {"page": "3"}, 80, 20, 100) == ("./explore?page=2", "")


def test_a_page_that_is_no_longer_there_is_the_first_one() -> None:
    pages: dict[int, list[dict[str, object]]] = {0: [{"n": 1}], 40: [{"n": 41}], 80: []}
    assert rows_or_first_page(pages.__getitem__, 80) == ([{"n": 1}], 0)
    assert rows_or_first_page(pages.__getitem__, 40) == ([{"n": 41}], 40)
    assert rows_or_first_page({0: []}.__getitem__, 0) == ([], 0)
