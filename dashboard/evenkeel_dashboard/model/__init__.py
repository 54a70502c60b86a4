"""What several pages say, worked out from plain rows."""
