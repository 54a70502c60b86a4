"""One HTTP request, from its arrival to the record that leaves the server."""
