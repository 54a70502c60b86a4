"""How do two cohorts of requests differ, by how much for certain, and why?"""
