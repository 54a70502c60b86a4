"""Statistics of paired comparisons: each function pure, its source cited, its output checkable."""
