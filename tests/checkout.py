"""Where this checkout's packages lie, for processes that must not import an installed one's."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[1]
PARTS = ("runtime", "collector", "dashboard", "evals", "demo")


def source_path(root: Path = ROOT) -> str:
    """Return a checkout's packages as PYTHONPATH has them."""
    return os.pathsep.join(map(str, (root, *(root / part for part in PARTS))))
