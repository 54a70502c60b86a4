"""The HTTP API of operators and applications: what it shows, what it may change, and its audit."""
