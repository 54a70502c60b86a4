"""Latency ledger: attributes each moment of a request to a cause."""
