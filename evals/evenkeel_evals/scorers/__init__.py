"""Scorers: pure functions from an answer and its reference to a score."""
