"""Golden datasets: items, locks, and imports from other tools."""
