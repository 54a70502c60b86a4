"""The contract every part of evenkeel shares: names, definitions, settings and the command."""
