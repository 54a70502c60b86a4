"""Charts, tables, tiles and words, escaped by construction."""
