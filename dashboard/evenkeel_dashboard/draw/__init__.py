"""Renders charts, tables, tiles and text; everything is escaped by construction."""
