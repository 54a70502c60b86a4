"""Other tools' formats: imports OpenSLO, Sloth and Pyrra, exports Prometheus rules."""
