"""What counts as secret or personal in a text, and how it is replaced: one set of rules."""
