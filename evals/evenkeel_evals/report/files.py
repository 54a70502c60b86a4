"""Writes the files of a `--report` folder, each atomically."""

from __future__ import annotations

import json
from pathlib import Path

from evenkeel.errors import CannotMeasureError, ConfigurationError
from evenkeel.synced_text import sync_text
from evenkeel_evals.report.html import to_html
from evenkeel_evals.report.junit import to_junit
from evenkeel_evals.report.manifest import to_manifest
from evenkeel_evals.report.table import to_markdown
from evenkeel_evals.verdict.finished_run import Outcome


def write_files(outcome: Outcome, folder: Path, dashboard_url: str) -> None:
    """Write a run's reports; the output is deterministic.

    Raises:
        ConfigurationError: If the folder cannot be created.
        CannotMeasureError: If they cannot be written; the journal is kept regardless.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"--report {folder} cannot be written: {error.strerror}"
        ) from error
    texts = {
        "run.json": json.dumps(outcome.to_record(), indent=2) + "\n",
        "manifest.json": json.dumps(to_manifest(outcome), indent=2) + "\n",
        "report.md": to_markdown(outcome),
        "report.html": to_html(outcome, dashboard_url),
        "junit.xml": to_junit(outcome),
    }
    for name, text in texts.items():
        try:
            sync_text(folder / name, text, "replace")
        except OSError as error:
            raise CannotMeasureError(
                f"{folder / name} cannot be written: {error.strerror}; the answers are saved; "
                "rerun with the same --report"
            ) from error
