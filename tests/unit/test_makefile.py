"""`make demo` on a machine that is not ready yet: it says so, and goes on where it stopped."""

import shutil
import subprocess
from pathlib import Path

from tests.checkout import ROOT

PARTS = (".", "runtime", "collector", "dashboard", "evals", "demo")
# A Python whose venv has no pip until the system has ensurepip, and whose index has no CPU torch.
FAKE = """\
#!/bin/sh
case "$*" in
    "-c "*) echo "$0" >> checked ;;
    "-m venv"*)
        mkdir -p .venv/bin && cp "$0" .venv/bin/python
        test -e ensurepip || { echo "ensurepip is not available" >&2; exit 1; }
        touch .venv/pip ;;
    "-m pip"*)
        test -e .venv/pip || { echo "No module named pip" >&2; exit 1; }
        echo "$*" >> installed
        case "$*" in
            *--extra-index-url*) ;;
            *requirements-cpu.lock*) echo "ERROR: no torch==2.13.0+cpu" >&2; exit 1 ;;
        esac ;;
esac
"""


def make(folder: Path) -> subprocess.CompletedProcess[str]:
    command = ["make", f"PYTHON={folder / 'python'}", ".venv/.runtime-installed"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def prepare(folder: Path) -> None:
    shutil.copy(ROOT / "Makefile", folder)
    (folder / "requirements-cpu.lock").touch()
    for part in PARTS:
        (folder / part).mkdir(exist_ok=True)
        (folder / part / "pyproject.toml").touch()
    (folder / "python").write_text(FAKE)
    (folder / "python").chmod(0o755)


def test_an_environment_without_pip_is_made_again(tmp_path: Path) -> None:
    prepare(tmp_path)
    first = make(tmp_path)
    assert first.returncode != 0
    assert "ensurepip is not available" in first.stderr
    (tmp_path / "ensurepip").touch()
    second = make(tmp_path)
    assert second.returncode == 0, second.stderr


def test_an_index_without_torch_for_the_cpu_shows_no_error(tmp_path: Path) -> None:
    """PyPI has none, so everybody would see it, and then nothing for minutes."""
    prepare(tmp_path)
    (tmp_path / "ensurepip").touch()
    done = make(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--extra-index-url" in (tmp_path / "installed").read_text()
    assert "installing into .venv" in done.stdout
    # Somebody may have made .venv with another Python.
    assert (tmp_path / "checked").read_text().split() == [f"{tmp_path}/python", ".venv/bin/python"]


def test_without_python_the_command_that_is_missing_is_named(tmp_path: Path) -> None:
    prepare(tmp_path)
    (tmp_path / "bin").mkdir()
    for tool in ("sh", "make"):
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool) or "")
    done = subprocess.run(
        ["make", ".venv/.runtime-installed"],
        cwd=tmp_path,
        env={"PATH": str(tmp_path / "bin")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "python3.11" in done.stderr
