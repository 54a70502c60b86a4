"""How long do requests take, for whom, and which ones are slow?"""
