"""The price file: what tokens and engines cost, when, and by which source."""
