"""Did the change pass its gates, and which answers changed?"""
