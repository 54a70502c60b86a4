"""The verbs of `evenkeel eval`, all parsed by `eval.py`, each in its file; `evenkeel prompts`."""
