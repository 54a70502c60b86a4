"""Predicts what engines would save without a tenant, by replaying what is stored of their work."""
