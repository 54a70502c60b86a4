"""Makes log segments into rows of any engine, with prices; schema, rollups, retention, backup."""
