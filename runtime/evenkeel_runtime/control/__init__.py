"""Decides which requests the engine gets, and when: deadlines, quotas, the gate, the ladder."""
