"""Checks OTLP, scrapes and feedback, and encodes them for the log."""
