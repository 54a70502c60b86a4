"""One comparison of two sides, from what decides its calls to its outcome."""
