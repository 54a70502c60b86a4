"""The exporter process: reads steps and requests; adds sessions, energy and ledgers; sends OTLP."""
