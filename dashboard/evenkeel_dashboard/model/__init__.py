"""Logic shared by several pages, computed from plain rows."""
