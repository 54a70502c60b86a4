"""Turns answers into effects, those into verdicts of gates, and those into the decision."""
