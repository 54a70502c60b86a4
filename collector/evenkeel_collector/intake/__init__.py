"""Checks OTLP, scrapes and feedback, and encodes them for the write-ahead log."""
