"""Words that readers type into the search of the site, by the page that they lead to, as entries of its index."""

from __future__ import annotations

WORDS = {
    "index": ["Buildkite", "installation", "pip install", "requirements"],
    "how-to/connect": ["API token", "scopes", "401", "authentication", "Buildkite token"],
    "where-it-runs": ["Windows", "macOS", "Linux", "Colab", "VS Code", "Jupyter", "Voila"],
    "how-to/queue-objective": ["SLO", "service level objective", "error budget", "SLI"],
    "how-to/rate-limits": ["429", "throttling", "rate limit", "quota", "Retry-After"],
    "how-to/agents": ["autoscaling", "capacity", "number of agents", "runners"],
    "what-if": ["simulation", "capacity planning"],
    "how-to/proxy": ["certificate", "SSL", "firewall"],
    "how-to/weekly-report": ["Slack", "e-mail", "cron"],
    "how-to/queue-time": ["wait time", "p95"],
    "how-to/flaky-steps": ["flaky tests", "flakiness"],
    "how-to/own-metric": ["custom metric", "own metric", "user-defined metric"],
    "how-to/slower-since": ["time of a deployment", "performance regression"],
    "how-to/parquet-to-s3": ["S3", "export", "data warehouse"],
    "how-to/cancel-branch": ["cancel builds"],
    "how-to/engines": ["Polars", "DuckDB", "Spark"],
    "metrics": ["95 %", "confidence interval", "percentile"],
    "report": ["dashboards", "alerting"],
    "scale": ["deployment", "production"],
    "webhooks": ["notification service", "events"],
    "widgets": ["marimo", "ipywidgets", "dashboard"],
    "store": ["retention", "history of builds", "Delta Lake"],
    "plots": ["savefig", "plt.show", "dark mode", "chart"],
    "sandbox": ["mock server", "demo", "test server"],
}
"""Pages without their suffix."""


def entries(page: str) -> str:
    """Return the directive with the entries of a page. Main entries (`!`) lead the results of a search."""
    return f"```{{index}} {', '.join(f'! {word}' for word in WORDS[page])}\n```\n"


def add_entries(_: object, page: str, source: list[str]) -> None:
    """Add the entries below the title of a page that Sphinx has read."""
    if page in WORDS:
        title, newline, text = source[0].partition("\n")
        source[0] = f"{title}{newline}\n{entries(page)}{text}"
