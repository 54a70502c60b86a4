"""The SLO file: reads YAML into objectives, rules, receivers and routes; errors name the line."""
