"""Where did one request's time go, and what delayed it?"""
