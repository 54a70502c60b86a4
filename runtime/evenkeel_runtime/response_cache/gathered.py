"""What a run said, put together from its outputs."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Gathered:
    """The parts of one answer, in order.

    Attributes:
        finish_reason: None until the run has ended.
    """

    texts: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: int | str | None = None

    @property
    def text(self) -> str:
        """The answer so far."""
        return "".join(self.texts)
