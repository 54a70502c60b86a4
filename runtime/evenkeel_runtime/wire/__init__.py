"""Formats of the data that our processes exchange."""
