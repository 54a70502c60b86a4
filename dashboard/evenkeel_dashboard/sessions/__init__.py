"""Where a session's time went: pure functions over its requests, tool calls and agents."""
