"""Stores log segments in ClickHouse: schema, rollups, retention, backup."""
