"""Which sessions were slow, expensive or failed, and where did the time of one go?"""
