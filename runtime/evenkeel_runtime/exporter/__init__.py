"""The exporter process: steps and requests in; sessions, energy, ledgers and OTLP out."""
