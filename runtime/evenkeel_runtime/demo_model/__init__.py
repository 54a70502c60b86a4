"""The demo model: a small Llama and its draft, trained on the support knowledge."""
