"""Records each engine step; runs in vLLM's engine process."""
