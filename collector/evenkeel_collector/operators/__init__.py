"""What operators may do through the API, and how it is listed."""
