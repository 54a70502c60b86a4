"""The verified response cache: answers, drafts, and the evidence that decides what to serve."""
