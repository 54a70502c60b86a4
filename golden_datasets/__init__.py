"""The golden datasets: one folder each."""
