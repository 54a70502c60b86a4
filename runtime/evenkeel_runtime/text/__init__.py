"""Compares texts word by word, without a model."""
