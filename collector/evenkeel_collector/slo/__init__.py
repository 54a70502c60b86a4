"""Evaluates SLOs and rules in a running collector; evidence, corrections, reports, templates."""
