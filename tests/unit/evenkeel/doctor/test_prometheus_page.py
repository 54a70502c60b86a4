"""A metrics page as strangers write it: odd labels, NaN, HTML, several engines."""

import time

import pytest

from evenkeel.doctor.prometheus_page import MAX_METRICS, MAX_WRONG, read_prometheus_page


def test_histograms_are_found_by_their_name_and_by_their_parts() -> None:
    page = read_prometheus_page(
        '# TYPE a histogram\na_bucket{le="1",m="x"} 3\na_sum{m="x"} 2.5\n'
        'a_count{m="x"} 3\nb_total 1\n'
    )
    assert page.has("a") and page.has("b") and page.has("b_total") and not page.has("c")
    assert page.metrics["a"].labels["m"] == {"x"}
    assert page.num_wrong == 0


@pytest.mark.parametrize(
    ("line", "label", "value"),
    [
        ('a{m="x{y},z"} 1', "m", "x{y},z"),
        (r'a{m="say \"hi\"\\n"} 1', "m", 'say "hi"\\n'),
        (r'a{m="two\nlines"} 1', "m", "two\nlines"),
        ('a{m="ü",} 1 1700000000000', "m", "ü"),
        ('a { m = "x" , n="y" } 1', "n", "y"),
    ],
)
def test_labels_may_hold_anything(line: str, label: str, value: str) -> None:
    page = read_prometheus_page(line)
    assert page.num_wrong == 0
    assert page.metrics["a"].labels[label] == {value}


def test_nan_is_no_number() -> None:
    page = read_prometheus_page('a{m="x"} NaN\nb +Inf\n')
    assert page.has("a") and not page.has_value("a")
    assert page.has_value("b")


@pytest.mark.parametrize(
    "text",
    ["", "<html><body>hello</body></html>", "\0\0\0", '{"error": "no"}', "a b c d e", "a{m=x} 1"],
)
def test_what_is_no_page_has_no_metrics(text: str) -> None:
    assert not read_prometheus_page(text).metrics


def test_a_long_page_of_nonsense_is_given_up_soon() -> None:
    page = read_prometheus_page("<p>no</p>\n" * 1_000_000)
    assert (page.num_wrong, page.wrong_line) == (MAX_WRONG, "<p>no</p>")


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("a" + " " * 60_000 + "x y z", id="spaces before a value"),
        pytest.param('a{b="c"}' + " " * 60_000 + "x y z", id="spaces after labels"),
        pytest.param("a{" + 'b="" , ' * 9_000 + "!} 1", id="many labels"),
        pytest.param('a{b="' + "\\\\" * 30_000 + " 1", id="backslashes without an end"),
        pytest.param("a" * 60_000, id="a name without an end"),
        pytest.param('a{b="c"} 1' + " " * 200_000, id="no label needs a line like this"),
    ],
)
def test_a_line_that_fools_a_parser_takes_no_time(line: str) -> None:
    began_s = time.process_time()
    page = read_prometheus_page("\n".join([line] * 15))
    assert time.process_time() - began_s < 10
    assert not page.metrics or line.endswith(" ")


@pytest.mark.parametrize(
    "line",
    [
        'a_bucket{le="1"} 3 # {trace_id="x"} 0.5 1700000000.5',
        "a 1 1700000000.5",
        "a 1 # {} 1",
        "a 1\r",
        "a 1 -5",
    ],
)
def test_openmetrics_is_read_too(line: str) -> None:
    page = read_prometheus_page(line)
    assert page.num_wrong == 0 and page.has("a")


@pytest.mark.parametrize("value", ["1_000", "0x10", "one"])
def test_what_only_python_calls_a_number_is_none(value: str) -> None:
    assert not read_prometheus_page(f"a {value}").metrics


def test_many_metrics_and_labels_are_bounded() -> None:
    page = read_prometheus_page("\n".join(f'm{i}{{l{i}="x"}} 1' for i in range(MAX_METRICS + 9)))
    assert len(page.metrics) == MAX_METRICS
    page = read_prometheus_page("\n".join(f'm{{l{i}="x"}} 1' for i in range(100)))
    assert (page.metrics["m"].num_series, len(page.metrics["m"].labels)) == (100, 64)


def test_many_values_of_a_label_are_bounded() -> None:
    page = read_prometheus_page("\n".join(f'a{{m="{i}"}} 1' for i in range(5_000)))
    assert (page.metrics["a"].num_series, len(page.metrics["a"].labels["m"])) == (5_000, 1_000)
