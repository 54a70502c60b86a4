"""Shortens long histories before the model reads them, where a check allows it."""
