"""Evaluates what production answered, and learns from it."""
