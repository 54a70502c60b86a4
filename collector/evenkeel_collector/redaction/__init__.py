"""The privacy rules applied to what senders send: the frames of trace requests, and metrics."""
