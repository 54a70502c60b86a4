"""What is firing, why, who was notified, and what should you do?"""
