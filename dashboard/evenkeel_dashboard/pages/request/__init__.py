"""Where did one request's time go, and who was in its way?"""
