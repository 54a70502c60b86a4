"""What is known of each serving engine: how its spans are recognised, what its metrics mean."""
