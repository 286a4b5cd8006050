"""Steps from YAML and from visual steps, and back."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from buildframe.sandbox_server.pipeline_yaml.parser import (
    MAX_JOBS,
    ParsedSteps,
    parse_configuration,
    parse_visual_steps,
)
from buildframe.sandbox_server.pipeline_yaml.serializer import format_yaml, step_json
from buildframe.sandbox_server.world.steps import PipelineStep, Trigger


def steps_of(text: str) -> tuple[PipelineStep, ...]:
    found = parse_configuration(text)
    assert found.problem is None, found.problem
    return found.steps


def one(text: str) -> PipelineStep:
    (step,) = steps_of(text)
    return step


def test_steps_are_a_list_or_in_a_map() -> None:
    for text in ("steps:\n- command: make\n", "- command: make\n", '[{"command": "make"}]'):
        assert steps_of(text) == (PipelineStep(key="step-1", has_key=False, command="make"),), text


EVERY_KIND = """
env: {CI: true, PORT: 8080}
agents: {queue: docker}
steps:
  - label: ":npm: Install it"
    commands: [npm ci, npm test]
  - wait
  - group: ":lock: Checks"
    depends_on: install-it
    steps:
      - {key: scan, command: scan, agents: [queue=deploy, os=linux], env: {PORT: 1.10}}
      - {command: lint, label: Lint, soft_fail: [{exit_status: 2}]}
  - {wait: ~, continue_on_failure: true}
  - block: Release?
    branches: [main, stable/*]
  - input: Which one?
    key: which
  - trigger: deploy
    label: Deploy
    depends_on: [checks, {step: which}]
    async: yes
    build: {message: Ship it, branch: main, commit: HEAD, env: {WHAT: all}}
"""


def test_every_kind_of_step() -> None:
    assert steps_of(EVERY_KIND) == (
        PipelineStep(
            key="install-it",
            label=":npm: Install it",
            command="npm ci\nnpm test",
            queue="docker",
            env={"CI": "true", "PORT": "8080"},
        ),
        PipelineStep(key="wait-2", has_key=False, kind="waiter"),
        PipelineStep(
            key="scan",
            command="scan",
            queue="deploy",
            agent_query_rules=("os=linux",),
            env={"CI": "true", "PORT": "1.10"},
            group="checks",
            needs=("install-it",),
        ),
        PipelineStep(
            key="lint",
            label="Lint",
            command="lint",
            queue="docker",
            env={"CI": "true", "PORT": "8080"},
            soft_fail=True,
            group="checks",
            needs=("install-it",),
        ),
        PipelineStep(key="wait-5", has_key=False, kind="waiter", continue_on_failure=True),
        PipelineStep(key="release", has_key=False, kind="manual", label="Release?", branches="main stable/*"),
        PipelineStep(key="which", kind="manual", label="Which one?"),
        PipelineStep(
            key="deploy",
            has_key=False,
            kind="trigger",
            label="Deploy",
            needs=("scan", "lint", "which"),
            trigger=Trigger(
                slug="deploy", message="Ship it", branch="main", commit="HEAD", env={"WHAT": "all"}, is_async=True
            ),
        ),
    )


ATTRIBUTES: dict[str, dict[str, Any]] = {
    "priority: -3": {"priority": -3},
    "retry: {automatic: true}": {"retries": 2},
    "retry: {automatic: false}": {"retries": 0},
    "retry: {automatic: {limit: 4}}": {"retries": 4},
    "retry: {automatic: {limit: 99}}": {"retries": 10},
    "retry: {automatic: [{exit_status: 1, limit: 1}, {exit_status: 2}]}": {"retries": 2},
    "parallelism: 5": {"parallelism": 5},
    "matrix: [a, 1.10]": {"matrix": {"matrix": ("a", "1.10")}},
    "matrix: {setup: {os: [linux], node: [18, 20]}}": {"matrix": {"os": ("linux",), "node": ("18", "20")}},
    "matrix: {setup: [x], adjustments: [{with: x, skip: true}]}": {"matrix": {"matrix": ("x",)}},
    "soft_fail: true": {"soft_fail": True},
    "soft_fail: []": {"soft_fail": False},
    "skip: because": {"skip": True},
    "skip: false": {"skip": False},
    "if: 'false'": {"skip": True},
    "if: build.branch == 'main'": {"skip": False},
    "timeout_in_minutes: 0": {"timeout_in_minutes": None},
    "timeout_in_minutes: 15": {"timeout_in_minutes": 15},
    "artifact_paths: [a/*, b]": {"artifact_paths": "a/*;b"},
    "branches: '!dev'": {"branches": "!dev"},
    "agents: queue=gpu": {"queue": "gpu"},
    "name: Old name": {"label": "Old name", "key": "old-name"},
    "id: mine": {"key": "mine", "has_key": True},
    "identifier: mine": {"key": "mine", "has_key": True},
    "label: ~": {"label": ""},
    "plugins: [docker]": {},
}


def test_attributes() -> None:
    plain = PipelineStep(key="step-1", has_key=False, command="make")
    assert {attributes: one(f"- command: make\n  {attributes}\n") for attributes in ATTRIBUTES} == {
        attributes: msgspec.structs.replace(plain, **expected) for attributes, expected in ATTRIBUTES.items()
    }


def test_keys_are_made_from_labels_and_never_shared() -> None:
    text = (
        "- {command: a, label: Test}\n- {command: b, label: ':x: TEST!'}\n- {command: c, key: step-2}\n- command: d\n"
    )
    steps = steps_of(text)
    assert [step.key for step in steps] == ["test", "step-2-2", "step-2", "step-4"]
    assert [step.has_key for step in steps] == [False, False, True, False]
    assert steps_of(format_yaml(steps)) == steps


def test_anchors_and_merges_are_fine() -> None:
    steps = "steps:\n- {<<: *c, command: a}\n- {<<: *c, command: b, priority: 2}\n"
    text = f"common: &c {{agents: {{queue: q}}, priority: 1}}\n{steps}"
    assert [(step.queue, step.priority) for step in steps_of(text)] == [("q", 1), ("q", 2)]


WRONG_TEXTS = {
    "": "`steps` must be a list",
    "steps: []": "`steps` must be a list",
    "just a text": "`steps` must be a list",
    "steps:\n- command: [a\n": "line 3: ",
    "steps:\n- label: nothing\n": "line 2: a step must have one of: command,",
    "- 5": "A step must be a map",
    "- trigger: ~": "`trigger` must be the slug of a pipeline",
    "- wait\n- command: {a: b}": "line 2: `command` must be a string or a list of strings",
    "- {command: a, parallelism: 0}": "`parallelism` must be a whole number from 1",
    "- {command: a, parallelism: many}": "`parallelism` must be a whole number from 1",
    "- {command: a, soft_fail: maybe}": "`soft_fail` must be true or false",
    "- {command: a, env: [b]}": "`env` must be a map",
    "- {command: a, env: {b: [c]}}": "`b` must be a string",
    "- {command: a, key: 'a b'}": "`key` must be at most 100",
    "- {command: a, matrix: {setup: {}}}": "`matrix` must be",
    "- {command: a, depends_on: b}": "needs 'b', which does not exist",
    "- {command: a, key: x}\n- {command: b, key: x}": "same key",
    "- {command: a, key: x, depends_on: y}\n- {command: b, key: y, depends_on: x}": "depend on each other",
    "- {command: a, key: upload}": "The key `upload`",
    "- {command: a, parallelism: 501}": "at most 500",
    "- group: a\n  steps: [{group: b, steps: [wait]}]": "a group cannot be in another",
    "- group: a": "`steps` must be a list",
    "a: &a [*a]\nsteps: *a": "contains itself",
    "? [a]\n: b": "a name must be a string",
    "- command: \x00": "The text is not valid YAML",
    "- !!python/object/apply:os.system [ls]": "A step must be a map",
    "[" * 1_000: "nested too deeply",
    "a" * 70_000: "longer than",
}


def test_what_is_wrong_is_said() -> None:
    problems = {}
    for text, says in WRONG_TEXTS.items():
        found = parse_configuration(text)
        problem = found.problem or ""
        assert found == ParsedSteps(problem=found.problem), text[:60]
        problems[text[:60]] = says if says in problem else problem
    assert problems == {text[:60]: says for text, says in WRONG_TEXTS.items()}


def test_bombs_of_aliases_do_no_harm() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 40)]
    merged = ["m0: &m0 {k: v}", *(f"m{n}: &m{n} {{<<: [*m{n - 1}, *m{n - 1}]}}" for n in range(1, 40))]
    for bomb in (lines, merged):
        assert "more than 20000 values" in (parse_configuration("\n".join([*bomb, "steps: [wait]"])).problem or "")


@given(st.text() | st.text(alphabet="- \n:{}[],*&?|>'\"!%@`abcsteps wait"))
@settings(max_examples=150, deadline=None)
def test_no_text_makes_an_exception(text: str) -> None:
    found = parse_configuration(text)
    assert bool(found.steps) == (found.problem is None)


NAMES = st.text(alphabet="abz09_:-", min_size=1, max_size=6)
TEXTS = st.text(max_size=8)
ENV = st.dictionaries(TEXTS, TEXTS, max_size=2)
BRANCHES = st.none() | st.just("main !dev/*")
RULES = st.lists(st.sampled_from(["os=linux", "gpu=true"]), unique=True, max_size=2).map(tuple)
SCRIPTS = st.builds(
    PipelineStep,
    key=NAMES,
    label=TEXTS,
    command=TEXTS.filter(lambda text: text != ""),
    queue=st.sampled_from(["default", "docker"]),
    agent_query_rules=RULES,
    branches=BRANCHES,
    priority=st.integers(-1000, 1000),
    retries=st.integers(0, 10),
    soft_fail=st.booleans(),
    parallelism=st.none() | st.integers(1, 3),
    matrix=st.none()
    | st.dictionaries(TEXTS, st.lists(TEXTS, min_size=1, max_size=2).map(tuple), min_size=1, max_size=2),
    env=ENV,
    artifact_paths=TEXTS,
    timeout_in_minutes=st.none() | st.integers(1, 100),
    skip=st.booleans(),
    group=st.none() | st.sampled_from(["unit", "e2e"]),
)
WAITERS = st.builds(PipelineStep, key=NAMES, kind=st.just("waiter"), continue_on_failure=st.booleans())
MANUALS = st.builds(PipelineStep, key=NAMES, kind=st.just("manual"), label=TEXTS, branches=BRANCHES, skip=st.booleans())
TRIGGERS = st.builds(
    PipelineStep,
    key=NAMES,
    kind=st.just("trigger"),
    label=TEXTS,
    soft_fail=st.booleans(),
    trigger=st.builds(
        Trigger,
        slug=NAMES,
        message=st.none() | st.just("Go"),
        branch=st.none() | st.just("main"),
        commit=st.none() | st.just("HEAD"),
        env=ENV,
        is_async=st.booleans(),
    ),
)
STEPS = st.lists(
    SCRIPTS | WAITERS | MANUALS | TRIGGERS, min_size=1, max_size=5, unique_by=lambda step: step.key
).flatmap(lambda steps: st.tuples(*(with_needs(steps, place) for place in range(len(steps)))))


def with_needs(steps: list[PipelineStep], place: int) -> st.SearchStrategy[PipelineStep]:
    """The step, needing some of those before it."""
    before = [step.key for step in steps[:place]]
    needs = st.lists(st.sampled_from(before), unique=True).map(tuple) if before else st.just(())
    return needs.map(lambda chosen: msgspec.structs.replace(steps[place], needs=chosen))


@given(STEPS)
@settings(max_examples=60, deadline=None)
def test_yaml_written_gives_the_steps_again(steps: tuple[PipelineStep, ...]) -> None:
    assert steps_of(format_yaml(steps)) == steps


def test_attributes_in_use_are_named() -> None:
    text = "env: {A: b}\nsteps:\n- {command: a, label: b}\n- wait\n- group: g\n  steps: [{command: c, priority: 1}]\n"
    inner = {"command", "label", "wait", "group", "steps", "priority"}
    assert parse_configuration(text).attributes == {"env", "steps", *(f"steps.{name}" for name in inner)}


# --- visual steps


VISUAL = [
    {
        "type": "script",
        "name": "Test",
        "command": "make",
        "artifact_paths": "log/*",
        "branch_configuration": "main",
        "env": {"A": "b"},
        "timeout_in_minutes": 5,
        "agent_query_rules": ["queue=docker", "os=linux"],
    },
    {"type": "waiter"},
    {"type": "manual", "label": "Go?"},
    {
        "type": "trigger",
        "label": "Deploy",
        "trigger_project_slug": "deploy",
        "trigger_commit": "HEAD",
        "trigger_branch": "main",
        "trigger_async": True,
    },
    {"type": "script"},
]


def test_visual_steps_are_returned_as_they_were_sent() -> None:
    steps = parse_visual_steps(VISUAL).steps
    assert [step.key for step in steps] == ["test", "wait-2", "go", "deploy", "step-5"]
    script, wait_step, manual, trigger, bare = map(step_json, steps)
    assert script == VISUAL[0] | {"concurrency": None, "parallelism": None}
    assert wait_step == VISUAL[1]
    assert manual == VISUAL[2]
    assert trigger == {
        "type": "trigger",
        "label": "Deploy",
        "pipeline": "deploy",
        "build": {"message": None, "branch": "main", "commit": "HEAD", "env": {}},
        "async": True,
        "branch_configuration": None,
        "concurrency": None,
        "parallelism": None,
    }
    assert (bare["name"], bare["command"], bare["agent_query_rules"]) == (None, "", [])


def test_visual_steps_that_cannot_be() -> None:
    wrong: list[tuple[list[dict[str, Any]], str]] = [
        ([], "at least 1 job"),
        ([{"type": "trigger"}], "`trigger_project_slug`"),
        ([{"type": "script", "timeout_in_minutes": 10**30}], "`timeout_in_minutes`"),
        ([{"type": "script"}] * (MAX_JOBS + 1), f"at most {MAX_JOBS}"),
    ]
    for steps, says in wrong:
        assert says in (parse_visual_steps(steps).problem or "")
