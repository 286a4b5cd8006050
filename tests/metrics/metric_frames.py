"""Create frames for the tests of metrics: small ones by minutes, and random ones for properties."""

from __future__ import annotations

import pandas as pd
from hypothesis import strategies as st

UTC = "datetime64[us, UTC]"
START = pd.Timestamp("2026-03-01", tz="UTC")


def at(*minutes: float | None) -> pd.Series:
    """Stamps so many minutes after START, None where there is none."""
    return pd.Series([pd.NaT if m is None else START + pd.Timedelta(m, "min") for m in minutes], dtype=UTC)


def jobs(**columns: object) -> pd.DataFrame:
    return pd.DataFrame({"type": "script", **columns})


offsets = st.integers(-5_000_000, 10_000_000_000) | st.integers(0, 9) | st.none()
rows = st.lists(
    st.tuples(
        st.sampled_from(["script", "script", "script", "trigger", None]),
        offsets,
        offsets,
        st.sampled_from("ab") | st.none(),
    )
)


def random_jobs(drawn: list[tuple[str | None, int | None, int | None, str | None]]) -> pd.DataFrame:
    """Jobs with runnable_at and started_at so many microseconds after START."""
    kinds, runnable, started, queues = zip(*drawn, strict=True) if drawn else ((), (), (), ())
    return pd.DataFrame(
        {
            "type": pd.Series(kinds, dtype="str"),
            "runnable_at": START + pd.to_timedelta(pd.Series(runnable, dtype="Int64"), unit="us"),
            "started_at": START + pd.to_timedelta(pd.Series(started, dtype="Int64"), unit="us"),
            "queue": pd.Series(queues, dtype="str"),
        }
    ).astype({"runnable_at": UTC, "started_at": UTC})
