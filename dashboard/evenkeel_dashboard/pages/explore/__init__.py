"""Which requests are like this, and what does the store say to a question?"""
