"""The collector process: settings, listeners, startup and shutdown."""
