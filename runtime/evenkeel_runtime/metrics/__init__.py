"""Prometheus: what our metrics have in common, and the server's metrics as OpenMetrics."""
