"""The HTTP API for operators and applications, with its audit log."""
