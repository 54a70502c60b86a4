"""Facts about each serving engine: how to recognise its spans, and what its metrics mean."""
