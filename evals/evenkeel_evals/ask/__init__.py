"""From a plan of calls to recorded, scored answers."""
