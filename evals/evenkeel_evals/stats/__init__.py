"""Statistics of paired comparisons: pure functions with cited sources."""
