"""Starts vLLM with the hooks, from our command or as a plugin of an existing `vllm serve`."""
