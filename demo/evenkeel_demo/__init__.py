"""Runs the whole platform on one machine, using only its public interfaces."""
