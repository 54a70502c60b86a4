"""Prometheus: what our collectors share, and the server's metrics as OpenMetrics."""
