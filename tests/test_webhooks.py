"""Webhook deliveries: verification, parsing, and rows."""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import json
import traceback
from typing import Any

import msgspec
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from buildframe import webhooks
from buildframe.errors import BadInput, Malformed, Unverified
from buildframe.fetching import arrow
from buildframe.spec import TABLES, Build, Moment
from buildframe.spec.rows import row_type
from buildframe.webhooks import HeaderNames
from buildframe.workspace import Workspace
from tests.refusals import refusal

SECRET = "s3cret-of-this-webhook"
NOW = Moment(2026, 11, 1, 12, tzinfo=dt.UTC)
UNIX = int(NOW.timestamp())
TOKEN, SIGNATURE, EVENT = "X-Service-Token", "X-Buildkite-Signature", "X-Buildkite-Event"
BODY = b'{"event":"ping"}'


def signature(body: bytes = BODY, at: int = UNIX, secret: str = SECRET) -> str:
    made = hmac.digest(secret.encode(), f"{at}.".encode() + body, hashlib.sha256)
    return f"timestamp={at},signature={made.hex()}"


# --- is it genuine ----------------------------------------------------------------------------------------------------

GENUINE: list[Any] = [
    {TOKEN: SECRET},
    {"X-Buildkite-Token": SECRET},
    {"x-service-TOKEN": SECRET},
    {b"x-service-token": SECRET.encode()},
    [(b"x-service-token", SECRET.encode()), (b"host", b"ci.example.com"), (b"host", b"twice")],
    {SIGNATURE: signature()},
    [(TOKEN, SECRET), (TOKEN, SECRET)],
    [(TOKEN, SECRET), ("X-Buildkite-Token", SECRET)],
    {SIGNATURE.lower().encode(): signature().encode()},
    {SIGNATURE: signature(), TOKEN: "wrong"},
    {SIGNATURE: signature(at=UNIX - 300)},
    {SIGNATURE: signature(at=UNIX + 300)},
    {SIGNATURE: signature().replace(",", ", ")},
    {SIGNATURE: signature().upper().replace("TIMESTAMP", "timestamp").replace("SIGNATURE", "signature")},
]

FORGED: list[Any] = [
    {},
    [],
    {TOKEN: ""},
    {TOKEN: SECRET[:-1]},
    {TOKEN: SECRET + "x"},
    {TOKEN: SECRET.upper()},
    {"Authorization": f"Bearer {SECRET}"},
    [(TOKEN, SECRET), (TOKEN, "wrong")],
    [(TOKEN, "wrong"), ("X-Buildkite-Token", SECRET)],
    {TOKEN: [SECRET]},
    {TOKEN: SECRET + "\ud83d"},
    {TOKEN: None},
    {SIGNATURE: signature(b'{"event":"pong"}'), TOKEN: SECRET},
    {SIGNATURE: "", TOKEN: SECRET},
    {SIGNATURE: None, TOKEN: SECRET},
    [(SIGNATURE, signature()), (SIGNATURE, signature(secret="another"))],
    {SIGNATURE: signature(secret="another")},
    {SIGNATURE: signature(at=UNIX - 301)},
    {SIGNATURE: signature(at=UNIX + 301)},
    {SIGNATURE: signature(at=10**12)},
    {SIGNATURE: signature().replace(str(UNIX), str(UNIX + 1))},
    {SIGNATURE: signature()[:-1]},
    {SIGNATURE: signature() + "0"},
    {SIGNATURE: f"timestamp={UNIX}"},
    {SIGNATURE: signature().split(",")[1]},
    {SIGNATURE: signature().replace(str(UNIX), "١٢٣")},
    {SIGNATURE: f"timestamp=-{UNIX},signature={'0' * 64}"},
]


def why_unverified(headers: Any) -> Unverified | None:
    """Return the error if a delivery with these headers is refused."""
    try:
        webhooks.verify(headers, BODY, SECRET, now=NOW)
    except Unverified as refused:
        return refused
    return None


def test_a_genuine_delivery_passes() -> None:
    assert [headers for headers in GENUINE if why_unverified(headers)] == []


def test_any_other_is_refused_without_showing_the_secret() -> None:
    refusals = [(headers, why_unverified(headers)) for headers in FORGED]
    assert [headers for headers, why in refusals if why is None or SECRET in str(why) or why.__cause__] == []


def test_a_signature_is_of_every_byte_of_the_body() -> None:
    webhooks.verify({SIGNATURE: signature(b"\xff\x00")}, b"\xff\x00", SECRET, now=NOW)
    with pytest.raises(Unverified):
        webhooks.verify({SIGNATURE: signature()}, BODY + b"\n", SECRET, now=NOW)


def test_age_and_names_are_settings_and_the_clock_is_this_machines() -> None:
    fresh = {"X-Ours": signature(at=int(dt.datetime.now(dt.UTC).timestamp()))}
    ours = HeaderNames(token=(), signature=("x-ours",))
    webhooks.verify(fresh, BODY, SECRET, names=ours)
    with pytest.raises(Unverified, match="old"):
        webhooks.verify({"X-Ours": signature()}, BODY, SECRET, names=ours, now=NOW + dt.timedelta(seconds=2),
                        max_age=dt.timedelta(seconds=1))  # fmt: skip
    with pytest.raises(Unverified):
        webhooks.verify({TOKEN: SECRET}, BODY, SECRET, names=ours)


def test_a_misspelt_option_is_refused_with_the_right_name() -> None:
    calls: list[tuple[Any, str, str]] = [
        (lambda **options: webhooks.verify({TOKEN: SECRET}, BODY, SECRET, **options), "maxage", "max_age"),
        (lambda **options: webhooks.signed_at({TOKEN: SECRET}, **options), "name", "names"),
        (lambda **options: webhooks.parse(BODY, {}, **options), "recieved_at", "received_at"),
    ]
    for call, option, meant in calls:
        said = refusal(call, **{option: None})
        assert f"has no option '{option}'. Did you mean '{meant}'" in said
        assert SECRET not in said


def test_an_invalid_secret_is_refused_and_not_shown() -> None:
    secrets: list[Any] = ["", " ", None, f"{SECRET}\n", "gehëim", b"bytes"]
    messages = {repr(secret): refusal(webhooks.verify, {TOKEN: ""}, BODY, secret) for secret in secrets}
    assert {secret: said for secret, said in messages.items() if not said or SECRET in said} == {}


def test_a_body_that_was_already_read_and_a_clock_without_a_zone_are_refused() -> None:
    with pytest.raises(BadInput, match="raw bytes"):
        webhooks.verify({SIGNATURE: signature()}, BODY.decode(), SECRET, now=NOW)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="raw bytes"):
        webhooks.parse(json.loads(BODY))
    with pytest.raises(BadInput, match="zone"):
        webhooks.verify({SIGNATURE: signature()}, BODY, SECRET, now=dt.datetime(2026, 11, 1))


anything = st.text(st.characters(exclude_categories=())) | st.binary() | st.none() | st.integers() | st.lists(st.text())
names = st.sampled_from([TOKEN, SIGNATURE, SIGNATURE.encode(), "x-buildkite-token"]) | st.text() | st.binary()
values = st.from_regex(r"timestamp=\d{0,14},\s?signature=[0-9a-f]{60,64}") | anything


@pytest.mark.long
@given(st.dictionaries(names, values) | st.lists(st.tuples(names, values)), st.binary())
@example({SIGNATURE: f"timestamp={'9' * 12},signature={'0' * 64}"}, b"")
def test_whatever_arrives_is_unverified_and_nothing_else(headers: Any, body: bytes) -> None:
    with pytest.raises(Unverified):
        webhooks.verify(headers, body, SECRET)


# --- parsing --------------------------------------------------------------------------------------------------------

URL = "https://api.example.com/v2/organizations/acme/pipelines/web"
BUILD: dict[str, Any] = {
    "id": "b-7", "number": 7, "state": "started", "url": f"{URL}/builds/7", "branch": "main", "commit": "HEAD",
    "created_at": "2013-09-03 13:24:38 UTC", "started_at": "2013-09-03T13:25:00.5+02:00", "new_field": {"x": 1},
    "meta_data": {"team": "a"},
}  # fmt: skip
JOB = {"id": "j-1", "type": "script", "name": ":b: test", "state": "started", "agent_query_rules": ["queue=macos"]}
PIPELINE = {"id": "p-1", "slug": "web", "url": URL}
SENDER = {"id": "u-1", "name": "Ada Example"}


def delivery(event: str = "job.started", **parts: Any) -> bytes:
    whole = {"event": event, "build": BUILD, "job": JOB, "pipeline": PIPELINE, "sender": SENDER} | parts
    return json.dumps({key: value for key, value in whole.items() if value is not ...}).encode()


def test_an_event_is_typed() -> None:
    event = webhooks.parse(delivery(), received_at=NOW)
    assert (event.name, event.received_at) == ("job.started", NOW)
    assert event.build is not None
    assert event.build.created_at == Moment(2013, 9, 3, 13, 24, 38, tzinfo=dt.UTC)
    assert event.build.started_at == Moment(2013, 9, 3, 11, 25, 0, 500000, tzinfo=dt.UTC)
    assert (event.build.number, event.build.state, event.build.jobs) == (7, "started", None)
    assert event.job is not None
    assert event.job.queue == "macos"
    assert event.pipeline is not None
    assert event.pipeline.organization == "acme"
    assert event.sender is not None
    assert event.sender.name == "Ada Example"
    assert event.document == json.loads(delivery())


def test_other_events_keep_their_name_and_document() -> None:
    for name in ("ping", "agent.connected", "build.exploded", "something new", "é"):
        event = webhooks.parse(json.dumps({"event": name, "agent": {"id": 1}}).encode())
        assert (event.name, event.document["agent"]) == (name, {"id": 1})
        assert (event.build, event.job, event.pipeline, event.sender) == (None, None, None, None)
        assert abs(event.received_at - dt.datetime.now(dt.UTC)) < dt.timedelta(minutes=1)


def test_a_header_names_the_event_where_the_body_does_not() -> None:
    assert webhooks.parse(b"{}", {EVENT.lower(): b"ping"}).name == "ping"
    assert webhooks.parse(b'{"event": 5}', [(EVENT.encode(), b"ping")]).name == "ping"
    assert webhooks.parse(BODY, {EVENT: "build.finished"}).name == "ping"  # a signature is of the body only
    assert webhooks.parse(b"{}", {"x-ours": "ping"}, names=HeaderNames(event=("X-Ours",))).name == "ping"
    with pytest.raises(Malformed):
        webhooks.parse(b"{}", [(EVENT, "ping"), (EVENT, "build.finished")])


def test_half_an_emoji_is_mended() -> None:
    body = b'{"event": "build.running", "build": {"id": "b", "message": "cut \\ud83d"}}'
    event = webhooks.parse(body)
    assert event.build is not None
    assert event.build.message == "cut \ufffd"
    assert webhooks.frames([event]).builds["message"][0] == "cut \ufffd"


UNREADABLE = [
    b"", b"{", b"null", b"[]", b'"ping"', b"\xff{}", b"{}", b'{"event": ""}', b'{"event": null}',
    b'{"event": ' + b"[" * 100_000,
    delivery(build="b-7"), delivery(build=[BUILD]), delivery(build={"number": 7}), delivery(job={"type": "script"}),
]  # fmt: skip


def test_what_cannot_be_read_is_malformed() -> None:
    assert [body[-60:] for body in UNREADABLE if not refusal(webhooks.parse, body, error=Malformed)] == []


ODD_VALUES: list[tuple[dict[str, Any], str | None, str | None]] = [
    ({"build": BUILD | {"number": "seven"}}, "number", None),
    ({"build": BUILD | {"number": 2**63}}, "number", None),
    ({"build": BUILD | {"created_at": "yesterday"}}, "created_at", None),
    ({"build": BUILD | {"created_at": "2026-10-01T00:00:00"}}, "created_at", None),
    ({"build": BUILD, "job": {"id": "j-1", "agent": {"name": {}}}}, "agent.name", "j-1"),
    ({"build": BUILD | {"jobs": [{"id": "j-2", "priority": 5}]}}, "priority", "j-2"),
    ({"build": BUILD, "pipeline": "web"}, "pipeline", None),
    ({"build": BUILD, "sender": 5}, None, None),
]


def test_one_odd_value_does_not_refuse_a_delivery() -> None:
    for more, field, job in ODD_VALUES:
        builds, _ = received(delivery(**more))
        assert builds["id"].to_list() == [BUILD["id"]]
        assert builds["branch"][0] == "main"
        named = [(entry["build"], entry["job"], entry["field"]) for entry in builds.attrs["odd"]]
        assert named == ([(BUILD["id"], job, field)] if field else [])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.just("2026-10-01T00:00:00Z"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "url", "number", "x"]), inner),
    max_leaves=8,
)


@pytest.mark.long
@given(st.dictionaries(st.sampled_from(["event", "build", "job", "pipeline", "sender"]), json_values), st.binary())
def test_a_body_is_read_or_malformed_and_nothing_else(document: dict[str, Any], junk: bytes) -> None:
    for body in (json.dumps(document).encode(), junk):
        try:
            webhooks.frames([webhooks.parse(body, {EVENT: "ping"})])
        except Malformed:
            continue


# --- its rows ---------------------------------------------------------------------------------------------------------


def received(*deliveries: bytes) -> webhooks.WebhookFrames:
    seconds = range(len(deliveries))
    moments = [NOW + dt.timedelta(seconds=s) for s in seconds]
    return webhooks.frames(webhooks.parse(body, received_at=at) for body, at in zip(deliveries, moments, strict=True))


def dtypes(frame: pd.DataFrame) -> dict[str, str]:
    return dict(frame.dtypes.astype(str))


def test_a_job_event_gives_its_build_and_its_job_beside_it() -> None:
    builds, jobs = received(delivery())
    assert list(builds["id"]) == ["b-7"]
    assert list(jobs["id"]) == ["j-1"]
    row = jobs.iloc[0]
    assert [row["organization"], row["pipeline"], row["pipeline_id"]] == ["acme", "web", "p-1"]
    assert [row["build_id"], row["build_number"], row["build_state"]] == ["b-7", 7, "started"]
    assert [row["queue"], row["branch"], row["fetched_at"]] == ["macos", "main", NOW]
    assert builds["meta_data"][0] == '{"team": "a"}'
    assert builds["created_at"][0] == pd.Timestamp("2013-09-03T13:24:38Z")


def test_a_builds_own_pipeline_goes_before_the_events() -> None:
    builds, _ = received(delivery(build=BUILD | {"pipeline": {"id": "own", "slug": "own"}}))
    assert [builds["pipeline"][0], builds["pipeline_id"][0]] == ["own", "own"]
    builds, _ = received(delivery(pipeline=...))
    assert builds["pipeline"][0] == "web"  # from the address
    assert pd.isna(builds["pipeline_id"][0])


def test_events_of_neither_give_no_rows_but_all_columns() -> None:
    for frames in (received(), received(BODY), received(delivery("agent.lost", build=..., job=...))):
        assert [len(frame) for frame in frames] == [0, 0]
        assert list(frames.builds.columns) == [column.name for column in TABLES["builds"]]
        assert list(frames.jobs.columns) == [column.name for column in TABLES["jobs"]]


def test_the_event_received_last_is_the_one_row_of_its_build_or_job() -> None:
    done = BUILD | {"state": "passed"}
    first, last = delivery(), delivery("job.finished", build=done, job=JOB | {"state": "passed"})
    other = delivery("build.running", build=BUILD | {"id": "b-8", "number": 8}, job=...)
    builds, jobs = received(first, other, last)
    assert list(zip(builds["id"], builds["state"], strict=True)) == [("b-8", "started"), ("b-7", "passed")]
    assert list(zip(jobs["id"], jobs["state"], strict=True)) == [("j-1", "passed")]
    assert list(builds.index) == [0, 1]
    late = [webhooks.parse(last, received_at=NOW + dt.timedelta(1)), webhooks.parse(first, received_at=NOW)]
    assert list(webhooks.frames(late).builds["state"]) == ["passed"]
    ties = [webhooks.parse(first, received_at=NOW), webhooks.parse(last, received_at=NOW)]
    assert list(webhooks.frames(ties).jobs["state"]) == ["passed"]


def test_a_job_without_its_build_is_not_lost() -> None:
    builds, jobs = received(delivery(build=...))
    assert len(builds) == 0
    assert [jobs["id"][0], jobs["pipeline"][0]] == ["j-1", "web"]
    assert pd.isna(jobs["build_id"][0])


def test_jobs_that_a_build_carries_against_all_custom_are_kept() -> None:
    assert list(received(delivery("build.finished", build=BUILD | {"jobs": [JOB]}, job=...)).jobs["id"]) == ["j-1"]


def test_a_delivery_gives_the_row_that_a_list_gives() -> None:
    build = BUILD | {"env": {"é": "a&b"}}  # its JSON text stays as the service wrote it
    rows = msgspec.json.Decoder(list[row_type(Build)]).decode(  # type: ignore[misc]
        json.dumps([build | {"pipeline": PIPELINE, "jobs": [JOB]}])
    )
    heads = arrow.from_rows("builds", rows, NOW)
    builds, jobs = received(delivery(build=build))
    pd.testing.assert_frame_equal(builds, arrow.to_frame("builds", [heads]))
    pd.testing.assert_frame_equal(jobs, arrow.to_frame("jobs", [arrow.jobs_of(heads, rows)]))


def test_rows_join_fetched_ones_and_keep_the_dtypes(ci: Workspace) -> None:
    fetched = ci.history(created_from="1d")
    for old, new in zip(fetched, received(delivery()), strict=True):
        joined = pd.concat([old, new])
        assert dtypes(joined) == dtypes(old) == dtypes(new)
        assert list(joined.columns) == list(old.columns)
        assert len(joined) == len(old) + 1


def test_names_of_headers_are_a_tuple() -> None:
    """A bare text would be taken letter by letter, and a wrong signature would not be seen."""
    wrong: list[dict[str, Any]] = [{"signature": "X-Sig"}, {"token": "X-Token"}, {"event": (1,)}]
    assert [names for names in wrong if "pass a tuple" not in refusal(HeaderNames, **names)] == []
    calls: list[tuple[Any, ...]] = [
        (webhooks.verify, {}, b"{}", "secret"),
        (webhooks.signed_at, {}),
        (webhooks.parse, b"{}"),
    ]
    said = [refusal(*call, names="X-Token") for call in calls]
    assert [message for message in said if "names='X-Token': pass a HeaderNames" not in message] == []


def test_settings_of_a_wrong_type_are_refused() -> None:
    given: dict[str, Any] = {"headers": {TOKEN: SECRET}, "body": BODY, "secret": SECRET, "now": NOW}
    wrong: list[dict[str, Any]] = [{"max_age": 300}, {"headers": None}, {"headers": 5}]
    assert [each for each in wrong if not refusal(webhooks.verify, **(given | each))] == []


def test_a_traceback_does_not_hold_the_secret() -> None:
    secret = "not-the-one-of-" + "the-test"
    with pytest.raises(Unverified) as refused:
        webhooks.verify({TOKEN: "wrong"}, BODY, secret, now=NOW)
    frames = traceback.TracebackException.from_exception(refused.value, capture_locals=True).stack
    assert all("not-the-one" not in str(frame.locals) for frame in frames if frame.filename == webhooks.__file__)


def test_shapes_that_no_document_states_are_read() -> None:
    odd = BUILD | {"pull_request": {"id": 12, "labels": [{"name": "bug"}]}, "meta_data": []}
    event = webhooks.parse(delivery(build=odd))
    assert event.build is not None
    assert event.build.pull_request is not None
    assert event.build.pull_request.id == "12"
    assert webhooks.frames([event]).builds["pull_request"][0] == "12"


def test_frames_of_what_is_no_event() -> None:
    wrong: list[Any] = [[{"a": 1}], {"a": 1}, [webhooks.parse(BODY), {"a": 1}]]
    said = [refusal(webhooks.frames, events) for events in wrong]
    assert [each for each in said if not each.startswith("events={'a': 1} is not an event. Pass a list of")] == []


def test_headers_that_are_no_pairs() -> None:
    wrong: list[Any] = [["ab"], [("a",)], [5], [("a", "b", "c")]]
    said = [refusal(webhooks.verify, pairs, b"{}", "secret") for pairs in wrong]
    said += [refusal(webhooks.parse, b"{}", pairs) for pairs in wrong]
    assert [each for each in said if "not pairs of name and value" not in each] == []
