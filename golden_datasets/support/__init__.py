"""Support questions of a fictional shop, and the script that builds the dataset from them."""
