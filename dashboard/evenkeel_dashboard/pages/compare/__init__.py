"""How do two cohorts of requests differ, how certain is the difference, and what causes it?"""
