"""The file of a script's figures, which its flag `--json` names."""

import json
from pathlib import Path
from typing import Any


def write_report(path: Path | None, report: Any) -> None:
    """Write a report as JSON, in a folder that may not exist yet; nothing without a path."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
