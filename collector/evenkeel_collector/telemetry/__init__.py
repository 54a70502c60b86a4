"""The collector's own metrics, served on `/metrics`."""
