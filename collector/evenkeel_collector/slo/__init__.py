"""Evaluates SLOs and rules inside a running collector, with evidence, corrections and reports."""
