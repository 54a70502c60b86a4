"""What limits the engine, and does speculation pay?"""
