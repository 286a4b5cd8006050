"""The HTTP server: routes, limits, faults, control routes and webhooks."""
