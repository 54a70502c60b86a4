"""One set of rules for what counts as secret or personal in a text, and how to replace it."""
