"""What does it cost, who pays for it, and what of it is wasted?"""
