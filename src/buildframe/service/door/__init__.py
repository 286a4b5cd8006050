"""The HTTP server: routes, limits, faults, controls, webhooks out."""
