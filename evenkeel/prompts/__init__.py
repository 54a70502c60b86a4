"""The prompt registry: drafts, versions, labels, and the one rule by which a label moves."""
