"""Where did an SLO's budget go, who spent it, and what would another objective say?"""
