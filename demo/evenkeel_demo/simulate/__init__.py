"""The requests of a simulated fleet, sent as OTLP."""
