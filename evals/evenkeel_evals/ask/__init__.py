"""Makes the planned calls, records the answers and scores them."""
