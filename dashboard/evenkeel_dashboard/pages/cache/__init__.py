"""What do the caches save, and are cached answers right?"""
