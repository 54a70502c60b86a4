"""One call of the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from evenkeel_runtime.request.trace import EngineRun


@dataclass(frozen=True, slots=True)
class EngineCall:
    """One call of the engine."""

    run: EngineRun
    prompt: Any
    params: Any
    request_id: str
    options: dict[str, Any]
