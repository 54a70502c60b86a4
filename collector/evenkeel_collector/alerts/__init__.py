"""What fires and what receivers are owed, in a book that survives a crash."""
