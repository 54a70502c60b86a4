"""Where the time of a session went: pure functions over its requests, tool calls and agents."""
