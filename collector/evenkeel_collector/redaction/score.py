"""Precision and recall of the value rules on labelled texts, rule by rule.

A corpus is JSON lines: `{"text": …, "secrets": [[rule, start, end], …]}`, offsets in characters.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from evenkeel.errors import ConfigurationError
from evenkeel.privacy.text import RedactionTally, TextRedactor


@dataclass(frozen=True, slots=True)
class LabelledText:
    """A text, and its secrets as (rule, start, end) in bytes of its UTF-8."""

    text: bytes
    secrets: tuple[tuple[str, int, int], ...]


@dataclass(slots=True)
class RuleScore:
    """How one rule did.

    A secret counts as found if the rule covers all of it: a rest that is left is a miss. A finding
    is false if it touches no secret of its rule.
    """

    num_found: int = 0
    num_missed: int = 0
    num_false: int = 0

    @property
    def precision_ratio(self) -> float | None:
        """Found / (found + false); None without findings."""
        num_findings = self.num_found + self.num_false
        return self.num_found / num_findings if num_findings else None

    @property
    def recall_ratio(self) -> float | None:
        """Found / (found + missed); None without secrets."""
        num_secrets = self.num_found + self.num_missed
        return self.num_found / num_secrets if num_secrets else None


def load_corpus(path: Path) -> list[LabelledText]:
    """Return the examples of a corpus.

    Raises:
        ConfigurationError: If a line is not an example.
    """
    examples = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            document = json.loads(line)
            text: str = document["text"]
            secrets = tuple(
                (str(rule), len(text[:start].encode()), len(text[:end].encode()))
                for rule, start, end in document["secrets"]
            )
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(f"{path}:{number}: not a labelled text: {error}") from error
        examples.append(LabelledText(text.encode(), secrets))
    return examples


def score(redactor: TextRedactor, examples: list[LabelledText]) -> Mapping[str, RuleScore]:
    """Return the score of each rule that found, missed or falsely found something."""
    scores: dict[str, RuleScore] = {}
    for example in examples:
        findings = redactor.find(example.text, RedactionTally())
        for rule, start, end in example.secrets:
            is_found = any(
                f.rule.name == rule and f.start <= start and end <= f.end for f in findings
            )
            entry = scores.setdefault(rule, RuleScore())
            entry.num_found += is_found
            entry.num_missed += not is_found
        for finding in findings:
            is_true = any(
                finding.rule.name == rule and finding.start < end and start < finding.end
                for rule, start, end in example.secrets
            )
            scores.setdefault(finding.rule.name, RuleScore()).num_false += not is_true
    return dict(sorted(scores.items()))
