"""The price file: what tokens and engines cost, from when, and according to which source."""
