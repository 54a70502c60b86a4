"""How long do requests take, for whom, and which are the slow ones?"""
