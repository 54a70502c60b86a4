"""What do the caches save, and is what they answer right?"""
