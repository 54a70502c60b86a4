"""The read-only query port: allowed queries and settings, and row filters per tenant."""
