"""The exporter process: steps and requests in, ledgers and OTLP out."""
