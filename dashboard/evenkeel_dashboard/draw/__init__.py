"""What several pages show: words, figures, charts, tables, tiles; all escaped by construction."""
