"""OTLP in, write-ahead log, ClickHouse out, SLO evaluation, alert delivery."""
