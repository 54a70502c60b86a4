"""The whole platform on one machine, driven through its own doors."""
