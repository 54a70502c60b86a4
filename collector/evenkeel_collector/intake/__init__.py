"""OTLP, scrapes and feedback, checked and turned into the bytes that the log keeps."""
