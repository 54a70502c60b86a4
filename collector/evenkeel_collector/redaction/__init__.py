"""Privacy rules for incoming data: removes secrets, prompts and answers."""
