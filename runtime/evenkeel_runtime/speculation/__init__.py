"""Drafts tokens, as many as make decoding faster; runs in the engine's process."""
