"""Why one request took as long as it did: causes, sentences, advice, and `evenkeel why`."""
