"""vLLM's OpenAI server with evenkeel's hooks."""
