"""Alert states and pending notifications, in a crash-safe database."""
