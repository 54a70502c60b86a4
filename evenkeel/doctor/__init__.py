"""`evenkeel doctor`: checks an installation, and shows what an engine's metrics can fill."""
