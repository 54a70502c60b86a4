"""`evenkeel prompts` and the verbs of `evenkeel eval`: one file each, parsed by `eval.py`."""
