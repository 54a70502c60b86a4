"""The verified response cache: answers, drafts and evidence from earlier requests."""
