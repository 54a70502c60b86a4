"""Says where a request's time went: what each moment of it was spent on."""
