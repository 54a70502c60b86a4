"""Support questions of an invented shop, and the script that makes the dataset from them."""
