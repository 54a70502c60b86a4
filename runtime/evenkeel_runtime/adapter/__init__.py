"""Nearly all access to vLLM's internals, one file per integration point."""
