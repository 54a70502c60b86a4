"""What strict YAML refuses, in one line and at once."""

from fractions import Fraction
from pathlib import Path

import pytest

from evenkeel.errors import ConfigurationError
from evenkeel.yaml_source import Value, read_documents


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
