"""Counters of the response cache."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class CacheCounts:
    """Counters since the start; they only grow.

    Attributes:
        outcomes: Requests by cache outcome (docs/guide/cache.md).
        bypasses: Requests that bypassed the cache, by reason.
        refused: Near hits rejected by a guard, by guard.
        unused: Near hits neither served nor verified, by the verdict on them: `same`, `different`,
            or `unjudged`; on routes that may serve or draft.
        verdicts: Comparisons with the model's own answer, by layer and verdict.
        embeddings: Lookups beyond the exact one by embedding outcome, and comparisons dropped
            because the queue was full (docs/guide/cache.md).
        not_kept: Answers that were not stored, by reason.
        errors: Failures of the cache, by kind; each such request was served by the model.
        replays: Replays by outcome.
        changes: Changes to what is served, by reason.
        saved_tokens: Output tokens that the engine did not have to generate, by layer.
        saved_s: Generation time of the served answers, in seconds, by layer.
        verified_tokens: Tokens of near answers that the model accepted as drafts.
        lookup_s: Lookup time in seconds, embeddings included.
        stored: Answers stored.
        deleted: Entries deleted on request.
        reloads: Versions of the cache's file since the start: `applied` or `rejected`.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    bypasses: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    unused: Counter[str] = field(default_factory=Counter)
    verdicts: Counter[tuple[str, str]] = field(default_factory=Counter)
    embeddings: Counter[str] = field(default_factory=Counter)
    not_kept: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    replays: Counter[str] = field(default_factory=Counter)
    changes: Counter[str] = field(default_factory=Counter)
    saved_tokens: Counter[str] = field(default_factory=Counter)
    saved_s: dict[str, float] = field(default_factory=dict)
    verified_tokens: int = 0
    lookup_s: float = 0.0
    stored: int = 0
    deleted: int = 0
    reloads: Counter[str] = field(default_factory=Counter)

    @property
    def recall_ratio(self) -> float | None:
        """Share of the equivalent answers found in the cache that were served or verified.

        used / (used + missed): used are the exact, semantic and verified answers. Missed are the
        near hits not used that the model's own answer agreed with; those not compared count as the
        compared ones. None without any, or if none was compared.
        """
        used = sum(self.outcomes[name] for name in ("exact", "semantic", "verified"))
        judged = self.unused["same"] + self.unused["different"]
        num_unused = judged + self.unused["unjudged"]
        if num_unused and not judged:
            return None
        missed = num_unused * self.unused["same"] / judged if judged else 0.0
        return used / (used + missed) if used + missed else None

    def record_saved(self, layer: str, tokens: int, seconds: float) -> None:
        """Count what one hit saved the engine."""
        self.saved_tokens[layer] += tokens
        self.saved_s[layer] = self.saved_s.get(layer, 0.0) + seconds
