"""The verified response cache: answers, drafts and evidence from requests answered before."""
