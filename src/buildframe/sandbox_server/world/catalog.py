"""The two organizations: their pipelines, steps and people."""

from __future__ import annotations

from typing import Any

from buildframe.sandbox_server.world.model import Organization, Person
from buildframe.sandbox_server.world.pipeline_settings import PipelineRecord
from buildframe.sandbox_server.world.steps import PipelineStep, Trigger, wait_step, with_upload_step


def _step(key: str, label: str, seconds: float, *needs: str, only: str | None = None, **more: Any) -> PipelineStep:
    """Return a script step; `more` are fields of `PipelineStep`."""
    reports = "reports/**/*" if more.get("group") else ""
    return PipelineStep(
        key=key,
        label=label,
        command=f"scripts/ci {key}",
        seconds=seconds,
        needs=needs,
        branches=only,
        artifact_paths=reports,
        **more,
    )


def _trigger(key: str, label: str, needs: str, trigger: Trigger) -> PipelineStep:
    return PipelineStep(key=key, kind="trigger", label=label, needs=(needs,), branches="main", trigger=trigger)


def _each(
    prefix: str, label: str, seconds: float, parts: str, *needs: str, queue: str = "default"
) -> tuple[PipelineStep, ...]:
    """Return one step per part, with somewhat different run times."""
    return tuple(
        _step(f"{prefix}-{part}", f"{label} {part}", seconds * (0.7 + 0.12 * place), *needs, group=prefix, queue=queue)
        for place, part in enumerate(parts.split())
    )


def _person(name: str) -> Person:
    return Person(name=name, email=f"{name.split()[0].lower()}@example.com")


WEB = PipelineRecord(
    slug="web",
    name=":globe_with_meridians: Web",
    share=0.23,
    main_share=0.45,
    description="The shop and its checkout",
    tags=(":react:", "frontend"),
    branch_configuration="main feature/* fix/* dev/*",
    cancel_running_branch_builds=True,
    cancel_running_branch_builds_filter="!main",
    steps=with_upload_step(
        _step("install", ":npm: Install", 55),
        _step("lint", ":eslint: Lint", 50, "install"),
        _step("types", ":typescript: Types", 80, "install"),
        *_each("unit", ":jest: Unit", 150, "cart catalog checkout account search shared", "install"),
        _step("bundle", ":webpack: Bundle", 170, "install"),
        _step("size", ":scales: Bundle size", 25, "bundle", soft_fail=True),
        _step("storybook", ":storybook: Stories", 140, "install"),
        _step(
            "visual",
            ":art: Visual {{matrix.device}}",
            90,
            "storybook",
            matrix={"device": ("desktop", "tablet", "phone")},
        ),
        _step("image", ":docker: Image", 160, "bundle", queue="docker"),
        _step("e2e", ":cypress: End to end", 300, "image", retries=1),
        _step("smoke", ":smoking: Smoke", 70, "image"),
        wait_step(),
        _step("scan", ":lock: Scan", 60),
        _step("licenses", ":scroll: Licenses", 30),
        _step("staging", ":rocket: Staging", 90, "scan", queue="deploy", only="main", priority=10),
        _step("production", ":ship: Production", 110, "staging", queue="deploy", only="main", priority=10),
    ),
)

API = PipelineRecord(
    slug="api",
    name=":gear: API",
    share=0.18,
    main_share=0.3,
    description="Orders, payments and stock",
    tags=(":python:",),
    steps=with_upload_step(
        _step("lint", ":ruff: Lint", 35),
        _step("types", ":mypy: Types", 95),
        *_each("unit", ":pytest: Unit", 130, "orders payments stock users mail search jobs", "lint"),
        _step("migrations", ":postgres: Migrations", 60, "lint"),
        _step("integration", ":postgres: Integration", 320, "migrations"),
        _step("contract", ":handshake: Contract", 120, "lint"),
        _step("load", ":chart_with_upwards_trend: Load %n of %t", 200, "integration", parallelism=2),
        wait_step(),
        _step("image", ":docker: Image", 130, queue="docker"),
        _step("scan", ":lock: Scan", 70, "image"),
        _step("sbom", ":card_index: Bill of materials", 25, "image"),
        _step("docs", ":books: Reference", 45),
        _step("staging", ":rocket: Staging", 80, "scan", queue="deploy", only="main", priority=10),
        _step("canary", ":hatching_chick: Canary", 150, "staging", queue="deploy", only="main", priority=10),
        _trigger("release", ":ship: Release", "canary", Trigger(slug="release", message="Release", is_async=True)),
    ),
)

MOBILE = PipelineRecord(
    slug="mobile",
    name=":iphone: Mobile",
    share=0.12,
    main_share=0.3,
    description="The apps for phones",
    tags=(":swift:", ":kotlin:"),
    branch_configuration="main feature/* fix/* dev/*",
    cancel_running_branch_builds=True,
    cancel_running_branch_builds_filter="!main",
    steps=with_upload_step(
        _step("lint", ":swift: Lint", 45),
        *_each("android", ":android: Android", 210, "unit ui", "lint"),
        _step("ios-build", ":xcode: Build", 800, "lint", queue="macos"),
        *_each("ios", ":apple: Test", 800, "unit ui snapshot watch widgets payments", "ios-build", queue="macos"),
        wait_step(),
        _step("ios-archive", ":package: Archive", 300, queue="macos", only="main"),
        _step("android-bundle", ":package: Bundle", 160, only="main"),
        _step("beta", ":airplane: Beta", 60, "ios-archive", queue="deploy", only="main", priority=10),
        _trigger("notes", ":books: Notes", "beta", Trigger(slug="docs", message="Notes", env={"PART": "notes"})),
    ),
)

PLATFORM = PipelineRecord(
    slug="platform",
    name=":building_construction: Platform",
    share=0.16,
    main_share=0.35,
    skip_queued_branch_builds=True,
    description=None,
    tags=None,
    steps=with_upload_step(
        _step("generate", ":cog: Generate", 40),
        _step("format", ":golang: Format", 20, "generate"),
        _step("vet", ":golang: Vet", 75, "generate"),
        *_each("test", ":golang: Test", 120, "auth billing cache config events flags gateway http id jobs", "generate"),
        *_each("race", ":checkered_flag: Race", 160, "auth events gateway jobs queue", "generate"),
        *_each("build", ":hammer: Build", 80, "amd64 arm64", "vet"),
        wait_step(),
        *_each("image", ":docker: Image", 110, "gateway worker cron admin", queue="docker"),
        _step("chart", ":kubernetes: Chart", 40),
        *_each("cluster", ":kubernetes: Cluster", 210, "small large upgrade", "chart"),
        wait_step(),
        _step("publish", ":outbox_tray: Publish", 50, queue="deploy", only="main", priority=10),
    ),
)

DATA = PipelineRecord(
    slug="data",
    name=":bar_chart: Data",
    share=0.09,
    main_share=0.5,
    description="Nightly tables and their checks",
    tags=("analytics",),
    nightly_hour=2,
    steps=with_upload_step(
        _step("lint", ":ruff: Lint", 30),
        *_each("models", ":duck: Models", 190, "raw staging marts finance product", "lint"),
        wait_step(),
        *_each("checks", ":white_check_mark: Checks", 90, "fresh unique complete ranges"),
        _step("spark", ":zap: Spark", 420, queue="docker", timeout_in_minutes=10),
        _step("legacy", ":turtle: Legacy tables", 300, skip=True),
        _step("report", ":bar_chart: Report", 65, "spark"),
    ),
)

BILLING = PipelineRecord(
    slug="billing",
    name="Billing",
    share=0.07,
    main_share=0.6,
    description="",
    tags=None,
    legacy=True,
    skip_queued_branch_builds_filter="!main",
    env={"TZ": "UTC"},
    steps=with_upload_step(
        _step("bundle", ":ruby: Bundle", 60),
        *_each("specs", ":rspec: Specs", 180, "invoices taxes refunds exports", "bundle"),
        _step("rubocop", ":cop: Style", 40, "bundle"),
        wait_step(),
        _step("package", ":package: Package", 50),
    ),
)

DOCS = PipelineRecord(
    slug="docs",
    name=":books: Docs",
    share=0.03,
    main_share=0.7,
    description="The handbook",
    tags=(),
    visibility="public",
    steps=with_upload_step(
        _step("prose", ":pencil: Prose", 30),
        _step("links", "", 70),
        _step("site", ":sphinx: Site", 60, "prose"),
    ),
)

RELEASE = PipelineRecord(
    slug="release",
    name=":ship: Release",
    share=0.008,
    main_share=0.3,
    description="Brings what is built to customers, when someone says so",
    tags=("release",),
    steps=(
        _step("changes", ":scroll: Changes", 25, only="main"),
        PipelineStep(key="approve", kind="manual", label="Bring it to customers?", branches="main"),
        _step("ship", ":ship: Ship", 80, queue="deploy", only="main", priority=10),
        _step("announce", ":mega: Announce", 15, "ship", only="main", soft_fail=True),
    ),
)

ACME = Organization(
    slug="acme",
    name="Acme",
    share=0.92,
    pipelines=(WEB, API, MOBILE, PLATFORM, DATA, BILLING, DOCS, RELEASE),
    people=tuple(
        _person(name)
        for name in (
            "Ada Quill", "Bo Lindgren", "Chidi Okoro", "Dana Whitfield", "Emeka Bright", "Freya Holm",
            "Goran Petrić", "Hana Sato", "Ines Duarte", "Jun Park", "Kofi Mensah", "Lena Brandt",
        )
    ),
)  # fmt: skip

GLOBEX = Organization(
    slug="globex",
    name="Globex",
    has_cluster=False,
    share=0.08,
    pipelines=(
        PipelineRecord(
            slug="site",
            name=":sparkles: Site",
            share=0.6,
            main_share=0.5,
            description="The public pages",
            tags=("marketing",),
            steps=with_upload_step(
                _step("install", ":npm: Install", 40),
                _step("lint", ":eslint: Lint", 30, "install"),
                *_each("unit", ":vitest: Unit", 70, "pages forms", "install"),
                _step("build", ":vite: Build", 80, "install"),
                wait_step(),
                _step("deploy", ":rocket: Deploy", 45, only="main"),
            ),
        ),
        PipelineRecord(
            slug="widgets",
            name="Widgets",
            share=0.4,
            main_share=0.4,
            description=None,
            tags=None,
            steps=with_upload_step(
                _step("build", ":rust: Build", 190),
                *_each("test", ":rust: Test", 120, "core codec cli", "build"),
                _step("bench", ":racehorse: Bench", 150, "build"),
            ),
        ),
    ),
    people=tuple(_person(name) for name in ("Mira Castell", "Noor Haddad", "Oskar Wyn")),
)

ORGANIZATIONS = (ACME, GLOBEX)
