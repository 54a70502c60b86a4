"""Is the service healthy, and if not, where does the time go?"""
