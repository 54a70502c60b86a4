"""`evenkeel export costs`: how its rows are written."""

import argparse
import csv
import errno
import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from evenkeel.cli import main
from evenkeel_collector.commands.charges import NO_CHARGE, focus_row, plain_row
from evenkeel_collector.commands.export import EXPORT
from evenkeel_collector.commands.export_costs import say, write_rows


def test_a_name_that_would_be_a_formula_is_quoted_and_numbers_are_not(tmp_path: Path) -> None:
    out = tmp_path / "costs.csv"
    args = argparse.Namespace(out=out, format="csv")
    row = {"tenant": '=HYPERLINK("x")', "billed_cost": -1.5}
    write_rows(args, [row], row)
    assert out.read_text() == 'tenant,billed_cost\n"\'=HYPERLINK(""x"")",-1.5\n'


@pytest.mark.parametrize("kind", [OSError, BrokenPipeError])
def test_standard_output_that_takes_nothing_is_no_wrong_argument(
    monkeypatch: pytest.MonkeyPatch, kind: type[OSError]
) -> None:
    class Refusing(io.StringIO):
        def write(self, text: str) -> int:
            raise kind(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sys, "stdout", Refusing())
    row = plain_row(NO_CHARGE)
    with pytest.raises(kind):
        write_rows(argparse.Namespace(out=None, format="csv"), [row], row)


@pytest.mark.parametrize("row_of", [plain_row, focus_row])
def test_a_range_without_charges_has_the_same_columns(tmp_path: Path, row_of: Any) -> None:
    out = tmp_path / "costs.csv"
    write_rows(argparse.Namespace(out=out, format="csv"), [], row_of(NO_CHARGE))
    assert out.read_text() == ",".join(row_of(NO_CHARGE)) + "\n"


def test_files_of_all_ranges_have_one_schema(tmp_path: Path) -> None:
    """Also if nobody used an engine, or nothing has a cost."""
    schemas = []
    for number, rows in enumerate(([], [NO_CHARGE], [replace(NO_CHARGE, engine_s=None)])):
        out = tmp_path / f"{number}.parquet"
        args = argparse.Namespace(out=out, format="parquet")
        write_rows(args, [plain_row(each) for each in rows], plain_row(NO_CHARGE))
        schemas.append(pyarrow.parquet.read_schema(out))
        assert pyarrow.parquet.read_table(out).num_rows == len(rows)
    assert schemas[0] == schemas[1] == schemas[2]
    assert str(schemas[0].field("engine_s").type) == "double"
    # A text could be compared with no time, nor taken apart, in DuckDB and pandas.
    assert str(schemas[0].field("begin").type) == "timestamp[us, tz=UTC]"
    assert str(schemas[0].field("end").type) == "timestamp[us, tz=UTC]"


def test_an_unknown_number_is_an_empty_cell(tmp_path: Path) -> None:
    unknown = replace(NO_CHARGE, input_tokens=100.0, cached_tokens=None)
    rows, like = [plain_row(unknown)], plain_row(NO_CHARGE)
    out = tmp_path / "costs.csv"
    write_rows(argparse.Namespace(out=out, format="csv"), rows, like)
    (read,) = csv.DictReader(out.read_text().splitlines())
    assert (read["input_tokens"], read["cached_tokens"]) == ("100.0", "")
    out = tmp_path / "costs.parquet"
    write_rows(argparse.Namespace(out=out, format="parquet"), rows, like)
    assert pyarrow.parquet.read_table(out).column("cached_tokens").to_pylist() == [None]


@pytest.mark.parametrize(
    ("priced", "cost", "said"),
    [
        pytest.param((0.0, 0.0), None, "requests no known cost, ", id="none has a price"),
        pytest.param((0.0, 4.0), 3.0, "requests 3 EUR, ", id="some have"),
        pytest.param((), 0.0, "0 rows", id="no request"),
    ],
)
def test_a_sum_of_unknown_costs_is_unknown(
    capsys: pytest.CaptureFixture[str], priced: tuple[float, ...], cost: float | None, said: str
) -> None:
    found = [
        replace(
            NO_CHARGE, currency="EUR", num_requests=5.0, num_priced=num, billed=3.0 if num else 0
        )
        for num in priced
    ]
    args = argparse.Namespace(out="costs.csv", json=True)
    say(args, found, 0, 60 * 10**9)
    assert json.loads(capsys.readouterr().out)["usage_cost"] == cost
    args.json = False
    say(args, found, 0, 60 * 10**9)
    assert said in capsys.readouterr().out


def test_requests_that_were_only_shed_make_no_sum_of_unknown_costs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """They cost nothing, but the sum said that the requests beside them did not either."""
    shed = replace(NO_CHARGE, num_requests=5.0, num_shed=5.0)
    args = argparse.Namespace(out="costs.csv", json=True)
    for served, cost in (([replace(NO_CHARGE, num_requests=5.0)], None), ([], 0.0)):
        say(args, [shed, *served], 0, 60 * 10**9)
        assert json.loads(capsys.readouterr().out)["usage_cost"] == cost


def test_times_in_csv_are_texts_in_utc(tmp_path: Path) -> None:
    out = tmp_path / "costs.csv"
    args = argparse.Namespace(out=out, format="csv")
    write_rows(args, [plain_row(NO_CHARGE)], plain_row(NO_CHARGE))
    assert ",1970-01-01T00:00:00Z,1970-01-01T00:00:00Z," in out.read_text()


@pytest.mark.parametrize(
    ("name", "format_"), [("x.parquet", "csv"), ("x.PARQUET", "focus"), ("x.csv", "parquet")]
)
def test_a_file_named_as_another_format_is_refused(
    name: str, format_: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--from", "2026-11-01", "--store-url", "http://127.0.0.1:1"]
    out = tmp_path / name
    flags += ["--out", str(out), "--format", format_]
    assert main(["export", "costs", *flags], [EXPORT]) == 2
    assert f"but --format {format_} writes" in capsys.readouterr().err
    assert not out.exists()
