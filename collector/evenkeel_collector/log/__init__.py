"""Write-ahead log: keeps acknowledged data until the store has it, deduplicated by segment name."""
