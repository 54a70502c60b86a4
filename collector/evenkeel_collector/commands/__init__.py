"""`evenkeel collect`, `slo`, `alerts` and `store`: arguments and printing."""
