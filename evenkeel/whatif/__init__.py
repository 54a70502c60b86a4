"""Predicts what engines would save without a tenant, by replaying their stored work."""
