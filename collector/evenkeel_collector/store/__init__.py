"""Log segments into ClickHouse: schema, rollups, retention, backup."""
