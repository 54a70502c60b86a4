"""Formats that cross a boundary between our processes, and nothing else."""
