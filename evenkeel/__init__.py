"""The contract that all parts of evenkeel share: names, definitions, settings and the command."""
