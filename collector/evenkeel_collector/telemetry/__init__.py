"""What the collector says about itself on `/metrics`."""
