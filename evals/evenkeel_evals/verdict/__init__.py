"""Turns answers into effects with intervals, and effects into verdicts."""
