"""The verified response cache: answers, drafts, and evidence of what may be served."""
