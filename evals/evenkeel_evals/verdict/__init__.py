"""Turns answers into effects, effects into gate verdicts, and verdicts into the decision."""
