"""What is known about each serving engine: how its spans are recognised, what its metrics mean."""
