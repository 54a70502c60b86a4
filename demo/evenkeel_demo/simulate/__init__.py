"""Simulates a fleet's requests and sends them as OTLP."""
