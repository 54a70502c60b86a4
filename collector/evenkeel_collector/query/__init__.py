"""The read-only query port: what a query may say, set and see, and which rows a tenant sees."""
