"""The SLO file: YAML into objectives, rules, receivers and routes; errors name the line."""
