"""docs/reference/tables.md has the columns of a new store."""

import subprocess
import sys

from tests.checkout import ROOT


def test_the_tables_are_current() -> None:
    # A process of its own: chDB opens one store per process.
    command = [sys.executable, "-m", "tools.reference", "--check", "tables"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (0, "current\n"), found.stderr
