"""Golden-dataset regression and A/B runs."""
