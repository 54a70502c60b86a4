"""Other tools' formats: OpenSLO, Sloth and Pyrra in, Prometheus rules out."""
