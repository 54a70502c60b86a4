"""Speculative decoding: drafts only as many tokens as pay off; runs in the engine's process."""
