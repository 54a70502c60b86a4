"""Admission control for the engine: deadlines, quotas, the gate and the ladder."""
