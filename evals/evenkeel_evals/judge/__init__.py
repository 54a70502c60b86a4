"""From answers to effects with their intervals, and to verdicts."""
