"""What strict YAML refuses, in one line and at once."""

from fractions import Fraction
from pathlib import Path

import pytest

from evenkeel.errors import ConfigurationError
from evenkeel.slo.yaml_source import Value, read_documents


def first_value(folder: Path, text: str) -> Value:
    path = folder / "a.yaml"
    path.write_text(f"a: {text}\n", encoding="utf-8")
    (document,) = read_documents(path)
    return document.section().required("a")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0.995", Fraction(995, 1000)),
        ("1/60", Fraction(1, 60)),
        ("5e-1", Fraction(1, 2)),
        ("3", Fraction(3)),
        ("-1", Fraction(-1)),
    ],
)
def test_a_number_is_exact(tmp_path: Path, text: str, number: Fraction) -> None:
    assert first_value(tmp_path, text).number("a number") == number


@pytest.mark.parametrize("text", ["1/0", "1e999999999", "9" * 5000, "nan", "1,5", "''"])
def test_what_is_no_number_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigurationError, match="expected a number"):
        first_value(tmp_path, text).number("a number")


def test_a_deep_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="nested too deeply"):
        first_value(tmp_path, "[" * 5000)


def test_a_character_in_two_halves_is_one_as_in_json(tmp_path: Path) -> None:
    assert first_value(tmp_path, r'"\ud83d\ude00 x"').text() == "\U0001f600 x"


@pytest.mark.parametrize("text", [r'"a\ud800b"', r'{"\udfff": 1}', r'[["\ude00\ud83d"]]'])
def test_half_a_character_is_refused_with_its_line(tmp_path: Path, text: str) -> None:
    """No database and no receiver takes it: one such label would keep every alert back."""
    with pytest.raises(ConfigurationError, match=r"half a surrogate pair.*a\.yaml:1"):
        first_value(tmp_path, text)
