"""The simulated world: organizations, pipelines, steps, random numbers, and planted anomalies."""
