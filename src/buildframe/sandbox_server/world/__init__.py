"""What there is: organizations, pipelines, steps, chance, and what was planted."""
