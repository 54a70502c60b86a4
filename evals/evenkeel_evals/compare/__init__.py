"""One comparison of two sides, from its settings to its outcome."""
