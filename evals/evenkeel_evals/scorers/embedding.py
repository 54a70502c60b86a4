"""Scorer by similarity of meaning: cosine of sentence embeddings, computed locally on the CPU.

Beware of fixed thresholds: "How do I reset password?" and "How do I change password?" have a cosine
of 0.86.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from evenkeel.embedding import load_encoder
from evenkeel_evals.scorers.base import Judge, Label, Options, Score, read_texts
from evenkeel_evals.scorers.options import read_threshold


def embedding(reference: Any, options: Options) -> Judge:
    """Judge by the cosine of the answer's and the reference's embeddings (default: 0.85)."""
    encoder = load_encoder()
    accepted = np.stack([encoder.encode(text) for text in read_texts("embedding", reference)])
    threshold = read_threshold("embedding", options, 0.85)

    def judge(answer: str) -> Score:
        cosine = float(np.max(accepted @ encoder.encode(answer)))
        value = min(1.0, max(0.0, cosine))
        return Score(value, Label.RIGHT if value >= threshold else Label.WRONG)

    return judge
