"""Nearly every contact with vLLM's internals, one file a seam."""
