"""`evenkeel doctor`: what is wrong with an installation, and what an engine's metrics fill."""
