"""Which sessions were slow, expensive or failed, and where did one session's time go?"""
