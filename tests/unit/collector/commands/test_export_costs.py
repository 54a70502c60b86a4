"""`evenkeel export costs`: how its rows are written."""

import argparse
from pathlib import Path

from evenkeel_collector.commands.export_costs import write_rows


def test_a_name_that_would_be_a_formula_is_quoted_and_numbers_are_not(tmp_path: Path) -> None:
    out = tmp_path / "costs.csv"
    args = argparse.Namespace(out=out, format="csv")
    write_rows(args, [{"tenant": '=HYPERLINK("x")', "billed_cost": -1.5}])
    assert out.read_text() == 'tenant,billed_cost\n"\'=HYPERLINK(""x"")",-1.5\n'
