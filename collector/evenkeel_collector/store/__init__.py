"""Turns log segments into priced rows, whatever the engine; schema, rollups, retention, backup."""
