"""What does serving cost, who pays for it, and how much of it is wasted?"""
