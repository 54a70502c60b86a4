"""What our middlewares and pages share of ASGI and of Prometheus."""
