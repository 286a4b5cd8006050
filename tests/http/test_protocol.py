"""Requests and responses of the protocol: paths, filters, errors, pages."""

from __future__ import annotations

import datetime as dt
import time
from types import GenericAlias
from urllib.parse import parse_qsl, urlsplit

import httpx
import msgspec
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from buildframe import errors, spec
from buildframe.errors import BadInput, Malformed
from buildframe.http import protocol
from buildframe.http.response import Response
from buildframe.spec.rows import row_type
from tests.refusals import wrong_refusals

SHA = "c69bbbfeeace709adc35562eddd3620d83245336"


def pairs(**filters: object) -> list[tuple[str, str]]:
    return parse_qsl(
        urlsplit(protocol.request_for(spec.list_builds, "acme", **filters).target).query, keep_blank_values=True
    )


def test_arrays_maps_flags_and_times_are_encoded_as_the_service_reads_them() -> None:
    placed = pairs(
        branch=["main", "a&state[]=b"],
        commit=SHA,
        state=("passed", "failed"),
        created_from="2026-10-01",
        created_to=dt.datetime(2026, 10, 2, 2, 0, 0, 5, tzinfo=dt.timezone(dt.timedelta(hours=2))),
        include_retried_jobs=True,
        exclude_jobs=False,
        meta_data={"release": "1 & 2", "buildkite:git:branch": "x"},
        creator="C6050650-0935-46D2-91CD-6C347ABEF327",
        finished_from=None,
    )
    assert placed == [
        ("branch[]", "main"),
        ("branch[]", "a&state[]=b"),
        ("commit", SHA),
        ("created_from", "2026-10-01T00:00:00Z"),
        ("created_to", "2026-10-02T00:00:00.000005Z"),
        ("creator", "c6050650-0935-46d2-91cd-6c347abef327"),
        ("include_retried_jobs", "true"),
        ("meta_data[release]", "1 & 2"),
        ("meta_data[buildkite:git:branch]", "x"),
        ("state[]", "passed"),
        ("state[]", "failed"),
        ("exclude_jobs", "false"),
    ]


anything = st.characters(exclude_categories=())  # halves of surrogate pairs, too


@given(
    st.text(anything, min_size=1),
    st.text(anything, min_size=1).filter(lambda key: not set(key) & set("[]")),
    st.text(anything),
)
def test_no_value_can_become_another_filter_or_path(branch: str, key: str, value: str) -> None:
    try:
        target = protocol.request_for(spec.list_builds, "acme", branch=[branch], meta_data={key: value}).target
    except BadInput:
        assert not branch.strip() or any("\ud800" <= sign <= "\udfff" for sign in branch + key + value)
        return
    parts = urlsplit(target)
    assert parts.path == "/v2/organizations/acme/builds"
    assert not parts.fragment
    assert parse_qsl(parts.query, keep_blank_values=True) == [("branch[]", branch), (f"meta_data[{key}]", value)]


def test_a_slug_cannot_change_the_rest_of_the_path() -> None:
    with pytest.raises(BadInput, match=r"pipeline='a/../b"):
        protocol.request_for(spec.get_build, "acme", "a/../b?x=1#y", 7)


def test_a_valid_slug_is_not_escaped_in_the_path() -> None:
    for slug in ("web", "Web-2-", "0", "a" * 100):
        target = protocol.request_for(spec.get_pipeline, "acme", slug).target
        assert target == f"/v2/organizations/acme/pipelines/{slug}"
    for name in ("acme", "acme_inc", "acme.inc", "ACME-2"):  # of organizations and suites no pattern is documented
        assert protocol.request_for(spec.list_flaky_tests, name, name).target.count(f"/{name}/") == 2


def test_every_text_parameter_of_a_path_has_a_check() -> None:
    texts = [parameter for endpoint in spec.ENDPOINTS for parameter in endpoint.parameters if parameter.type is str]
    assert all(parameter.check is not None for parameter in texts)


def test_a_valid_slug_is_suggested() -> None:
    slugs = {
        "acme/web": "web",
        "acme%2Fweb": "web",
        "https://ci.example.com/acme/web": "web",
        "https://ci.example.com/acme/web/builds/41#job": "web",
        "https://api.example.com/v2/organizations/acme/pipelines/web/builds?page=2": "web",
        "https://api.example.com/v2/organizations/acme/pipelines/web": "web",
        "My Web  Shop": "my-web-shop",
        "my_web": "my-web",
        "web\n": "web",
        "we\x1b[31mb": "we-31mb",
    }
    words = r"^pipeline=[^\x1b\n]* is not a slug: .* Did you mean "
    cases = [(slug, rf"{words}'{meant}'\?$") for slug, meant in slugs.items()]
    assert wrong_refusals(cases, lambda slug: protocol.request_for(spec.get_pipeline, "acme", slug)) == {}


def test_an_error_without_a_suggestion_says_where_to_find_the_slug() -> None:
    slugs = ["", " ", ".", "..", "%", "%2e", "a" * 101, "https://ci.example.com"]
    cases = [(slug, r"is not a slug.*Copy it from the URL of its page") for slug in slugs]
    assert wrong_refusals(cases, lambda slug: protocol.request_for(spec.get_pipeline, "acme", slug)) == {}


def test_a_valid_slug_of_organizations_and_suites_is_suggested() -> None:
    suite = "https://ci.example.com/organizations/acme/analytics/suites/rspec"
    cases = [
        ((spec.list_builds, "https://ci.example.com/acme/web"), "organization=.*Did you mean 'acme'"),
        ((spec.list_flaky_tests, "acme", "acme/rspec"), "suite='acme/rspec'.*Did you mean 'rspec'"),
        ((spec.list_flaky_tests, "acme", suite), "suite=.*Did you mean 'rspec'"),
    ]
    assert wrong_refusals(cases, lambda one: protocol.request_for(*one)) == {}


def test_invalid_filters_are_refused_with_the_valid_name_or_value() -> None:
    cases: list[tuple[dict[str, object], str]] = [
        ({"brnach": "main"}, "Did you mean 'branch'"),
        ({"zzz": 1}, "Valid names: branch, commit"),
        ({"state": "pased"}, "'pased' is not a state of a build. Did you mean 'passed'"),
        ({"state": ["passed", "FAILED"]}, "Did you mean 'failed'"),
        ({"commit": "c69bbbf"}, "shortened SHA.*git rev-parse c69bbbf"),
        ({"commit": [SHA, "C69BBBF"]}, "shortened SHA"),
        ({"branch": []}, "empty list"),
        ({"branch": ""}, "not empty"),
        ({"branch": 7}, "pass a str or a list"),
        ({"branch": iter(["main"])}, "pass a str or a list"),
        ({"branch": pd.DataFrame({"branch": ["main"]})}, "pass a str or a list"),
        ({"branch": [7]}, "pass a str"),
        ({"creator": "ada"}, "not a UUID"),
        ({"meta_data": "release=1"}, "mapping"),
        ({"meta_data": {}}, "mapping"),
        ({"meta_data": {"a]&state": "x"}}, "without brackets"),
        ({"meta_data": {"a": 1}}, "str values"),
        ({"include_retried_jobs": "yes"}, "True or False"),
        ({"created_from": "2026-10-01T00:00"}, "no time zone"),
        ({"created_from": "30d"}, "service's time"),
    ]
    assert wrong_refusals(cases, lambda filters: protocol.request_for(spec.list_builds, "acme", **filters)) == {}


LONG = "too long: the URL would have .* characters, and the limit is 60,000. Nothing was sent. Pass some"


def test_filters_that_do_not_fit_into_a_url_are_refused() -> None:
    cases: list[tuple[dict[str, object], str]] = [
        ({"commit": [f"{number:040x}" for number in range(2000)], "branch": "main"}, f"^commit is {LONG}"),
        ({"branch": [f"feature/{number}" for number in range(9000)], "commit": SHA}, f"^branch is {LONG}"),
        ({"meta_data": {str(number): "value" for number in range(5000)}, "branch": "main"}, f"^meta_data is {LONG}"),
    ]
    assert wrong_refusals(cases, lambda filters: protocol.request_for(spec.list_builds, "acme", **filters)) == {}


def test_a_url_that_passes_the_check_can_be_sent() -> None:
    with pytest.raises(BadInput, match="branch is"):
        protocol.request_for(spec.list_builds, "acme", branch="x" * 60_000)
    request = protocol.page_request(spec.list_builds, "acme", branch="x" * 59_950, per_page=100, number=1000)
    assert str(httpx.URL(f"https://api.example.com{request.target}")).endswith("&page=1000&per_page=100")


def test_a_ref_such_as_head_is_a_valid_commit_filter() -> None:
    assert pairs(commit="HEAD") == [("commit", "HEAD")]


def test_an_invalid_slug_or_number_is_refused() -> None:
    slugs = [(slug, "slug") for slug in ("", " ", ".", "..", None, 7)]
    assert wrong_refusals(slugs, lambda slug: protocol.request_for(spec.list_builds, slug)) == {}
    numbers = [(number, "number") for number in (0, -1, True, "7", 1.0, 10**18, 10**5000)]
    assert wrong_refusals(numbers, lambda number: protocol.request_for(spec.get_build, "acme", "web", number)) == {}


REQUEST = protocol.request_for(spec.list_builds, "acme")
DATE = {"date": "Sun, 01 Nov 2026 12:00:00 GMT"}


def refused(status: int, body: bytes, **headers: str) -> errors.ServiceError:
    with pytest.raises(errors.ServiceError) as caught:
        protocol.check(
            REQUEST, Response(status, {name.replace("_", "-"): value for name, value in headers.items()}, body)
        )
    return caught.value


def test_each_status_has_its_error() -> None:
    kinds = {
        400: (errors.Invalid, False),
        401: (errors.Unauthorized, False),
        403: (errors.Forbidden, False),
        404: (errors.NotFound, False),
        422: (errors.Invalid, False),
        429: (errors.RateLimited, True),
        500: (errors.Unavailable, True),
        503: (errors.Unavailable, True),
    }
    found = {status: refused(status, b'{"message": "because"}', x_request_id="r-1") for status in kinds}
    assert {status: (type(error), error.retryable) for status, error in found.items()} == kinds
    for status, error in found.items():
        assert (error.status, error.message, error.request_id) == (status, "because", "r-1")
        assert f"{status}: because" in str(error)
        assert "GET /v2/organizations/acme/builds" in str(error)


def test_an_error_message_contains_each_error_of_the_response() -> None:
    body = b'{"message":"Validation Failed","errors":[{"field":"name","code":"already_exists"},"odd",{"x":1}]}'
    error = refused(422, body)
    assert "422: Validation Failed (name already_exists; odd; x: 1)" in str(error)
    assert error.errors[0] == {"field": "name", "code": "already_exists"}


def test_an_error_message_contains_errors_of_any_shape() -> None:
    messages = {
        b'[{"field":"name","code":"invalid","message":"is too long"}]': "(name invalid, message: is too long)",
        b'[{"field":"name","message":"is too long"}]': "(name, message: is too long)",
        b'{"name":["is taken"],"slug":"odd"}': "(name ['is taken']; slug odd)",
        b'"the slug is bad"': "(the slug is bad)",
        b"[]": "422: Validation Failed\n",
    }
    found = {sent: str(refused(422, b'{"message":"Validation Failed","errors":' + sent + b"}")) for sent in messages}
    assert {sent: text for sent, text in found.items() if messages[sent] not in text} == {}


def test_a_missing_scope_is_named_from_the_text_or_the_headers() -> None:
    said = refused(403, b'{"message":"Your access token doesn\'t have the read_builds scope"}')
    assert said.scope == "read_builds"
    assert "has the scope read_builds" in str(said)
    assert refused(403, b'{"message":"Forbidden"}', x_oauth_scopes="read_user, read_pipelines").scope == "read_builds"
    permission = refused(403, b'{"message":"Forbidden"}', x_oauth_scopes="read_builds,read_user")
    assert permission.scope is None
    assert "permission" in str(permission)


def test_an_unreadable_error_body_does_not_hide_the_status() -> None:
    for body in (b"", b"<html>gateway</html>", b"[1]", b'{"error": 1}', b"\xff\xfe"):
        assert refused(502, body).status == 502, body


def test_the_wait_is_the_largest_that_the_server_names() -> None:
    body = b'{"message":"x","scope":"rest","limit":200,"current":201,"reset":7}'
    error = refused(429, body, ratelimit_remaining="0", ratelimit_reset="9", ratelimit_user_remaining="3")
    assert error.retry_after == 9
    assert refused(429, body).retry_after == 7
    assert refused(429, body, retry_after="30").retry_after == 30
    assert refused(429, b"nonsense", retry_after="soon").retry_after is None
    assert refused(503, b"", retry_after="2").retry_after == 2
    assert refused(502, b"", retry_after="3").retry_after == 3
    dated = {"date": "Wed, 21 Oct 2026 07:28:00 GMT", "retry_after": "Wed, 21 Oct 2026 07:28:40 GMT"}
    assert refused(429, b"", **dated).retry_after == 40


def test_an_unreadable_response_is_retryable_if_it_is_no_json() -> None:
    decoder = msgspec.json.Decoder(list[int])
    bodies = {
        b"[1, 2": True,
        b"<html>": True,
        b"": True,
        b'["x", 2': True,
        b'["x"]': False,
        b"{}": False,
        b"null": False,
    }
    for body, retryable in bodies.items():
        with pytest.raises(Malformed, match="cannot be read") as caught:
            protocol.read_page(REQUEST, Response(200, DATE, body), decoder)
        assert caught.value.retryable is retryable, body
    with pytest.raises(Malformed, match="Date"):
        protocol.read_page(REQUEST, Response(200, {}, b"[]"), decoder)


def test_half_of_a_surrogate_pair_does_not_make_a_page_malformed() -> None:
    body = b'["cut \\ud83d", "whole \\ud83d\\ude00", "\\u00fc"]'
    page = protocol.read_page(REQUEST, Response(200, DATE, body), msgspec.json.Decoder(list[str]))
    assert page.rows == ["cut \ufffd", "whole \U0001f600", "ü"]


def test_a_sha_in_capitals_is_sent_in_lower_case() -> None:
    assert pairs(commit=SHA.upper()) == [("commit", SHA)]


def test_a_page_contains_its_rows_its_next_link_and_the_time_of_the_service() -> None:
    page = protocol.read_page(REQUEST, Response(200, DATE, b"[1]", "https://x/next"), msgspec.json.Decoder(list[int]))
    assert (page.rows, page.next, page.of) == ([1], "https://x/next", None)
    response = Response(200, DATE, b"[1]", None, "https://x/v2/builds?page=268&per_page=2")
    assert protocol.read_page(REQUEST, response, msgspec.json.Decoder(list[int])).of == 268
    assert page.at == spec.Moment(2026, 11, 1, 12, tzinfo=dt.UTC)


def test_a_page_that_is_not_utf8_is_malformed_also_in_values_that_no_column_has() -> None:
    rows = msgspec.json.Decoder(GenericAlias(list, (row_type(spec.Build),)))
    page = Response(200, DATE, '[{"id":"b1","unknown":"é€🚀"}]'.encode())
    assert protocol.read_page(REQUEST, page, rows).rows[0].id == "b1"
    cases = [(text, "utf-8") for text in (b"\x80", b"\xe2\x82", b"\xc0\xaf", b"\xf4\x90\x80\x80")]

    def read(text: bytes) -> object:
        return protocol.read_page(REQUEST, page._replace(body=page.body.replace("🚀".encode(), text)), rows)

    assert wrong_refusals(cases, read, Malformed) == {}


def test_a_damaged_key_is_malformed_and_not_null() -> None:
    rows = msgspec.json.Decoder(GenericAlias(list, (row_type(spec.Build),)))
    request = protocol.request_for(spec.list_builds, "acme")
    sound = Response(200, {"date": "Sun, 01 Nov 2026 12:00:00 GMT"}, b'[{"id":"b1","branch":"main"}]')
    assert protocol.read_page(request, sound, rows).rows[0].branch == "main"
    with pytest.raises(Malformed, match="utf-8"):
        protocol.read_page(request, sound._replace(body=b'[{"id":"b1","bra\xffch":"main"}]'), rows)


def test_a_url_is_shown_without_user_and_query_in_linear_time() -> None:
    assert protocol.shown("https://me:pass@word@h.example.com/a?signed=1") == "https://h.example.com/a"
    assert protocol.shown("//me@h/a") == "//h/a"
    assert protocol.shown("/a@b") == "/a@b"
    began = time.process_time()
    assert protocol.shown("/" * 200_000) == "/" * 200_000
    assert time.process_time() - began < 1.0
