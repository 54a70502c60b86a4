"""Keeps what was acknowledged until the store has it; a segment's name is its token there."""
