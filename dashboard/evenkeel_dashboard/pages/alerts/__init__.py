"""What fires, why, who was told, and what is to be done about it?"""
