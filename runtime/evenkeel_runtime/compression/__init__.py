"""Shortens long histories before the model reads them, if a check allows it."""
