"""The collector as a process: settings, listeners, and the order in which all of it starts."""
