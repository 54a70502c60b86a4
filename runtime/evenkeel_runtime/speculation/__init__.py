"""Speculative decoding: drafts as many tokens as pay off; runs in the engine's process."""
