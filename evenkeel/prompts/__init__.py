"""The prompt registry: drafts, versions, labels, and the rules for moving a label."""
