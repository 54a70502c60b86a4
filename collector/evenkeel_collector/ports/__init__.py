"""Access, limits and connections, shared by all ports."""
