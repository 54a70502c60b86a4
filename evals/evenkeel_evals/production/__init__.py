"""Evaluates production answers, and grows datasets from them."""
