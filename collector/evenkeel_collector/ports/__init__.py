"""What all ports share: who may connect, with how much, and how often."""
