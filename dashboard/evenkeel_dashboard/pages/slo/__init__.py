"""Where did an SLO's budget go, who spent it, and how would another objective have done?"""
