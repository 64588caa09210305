"""The project's home: workflows call what there is, versions and licences are the same wherever they are stated."""

import re
import tomllib
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import notebook_lint as lint
import notebooks as notebook_tool
import pytest
import yaml

import vitbook

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PAGES = sorted({*ROOT.glob("*.md"), ROOT / ".github" / "pull_request_template.md", ROOT / "vitbook/assets/README.md"})
CHAPTERS = lint.chapter_paths()


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@cache
def project() -> dict:
    return tomllib.loads(text_of("pyproject.toml"))["project"]


def workflow(path: Path) -> dict:
    """A workflow; YAML reads the key `on` as true."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


JOBS = [(path.stem, name, job) for path in WORKFLOWS for name, job in workflow(path)["jobs"].items()]
each_job = pytest.mark.parametrize(("file", "name", "job"), JOBS, ids=lambda v: v if isinstance(v, str) else "")


# Commands


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][\w-]*):", text_of("Makefile"), flags=re.M))


def pinned(name: str) -> bool:
    return bool(re.search(rf"^{re.escape(name)}==", text_of("requirements.txt"), flags=re.M))


def unknown_commands(script: str) -> list[str]:
    """What a script calls that the repository does not have: targets of make, files, Python's modules."""
    lines = [line.split(" #")[0] for line in script.splitlines() if not line.lstrip().startswith("#")]
    script = "\n".join(lines)
    script = re.sub(r"tests/test_(topic|NAME)\.py", "", script)  # a name to be filled in
    found = [f"make {name}" for name in re.findall(r"\bmake ([a-z][\w-]*)", script) if name not in make_targets()]
    found += [
        name
        for name in re.findall(r"(?<![\w/.])((?:tools|tests|\.ci)/[\w./-]*\w)", script)
        if not (ROOT / name).exists()
    ]
    modules = {"pip", "venv", "http.server"}
    for name in re.findall(r"python3? -m ([\w.]+)", script):
        guarded = f"'^{name}==' requirements.txt" in script
        if name not in modules and not pinned(name) and not guarded:
            found.append(f"python -m {name}")
    found += [f".venv/bin/{name}" for name in re.findall(r"\.venv/bin/([\w-]+)", script) if name not in BINARIES]
    return found


BINARIES = {
    "python",
    "activate",
    "pip",
    "jupyter",
    "vitbook",
    *(n for n in ("codespell", "ruff", "playwright", "jupytext") if pinned(n)),
}


@each_job
def test_workflows_call_what_there_is(file: str, name: str, job: dict) -> None:
    scripts = [step["run"] for step in job["steps"] if "run" in step]
    assert scripts or any("uses" in step for step in job["steps"])
    assert not [command for script in scripts for command in unknown_commands(script)]


@pytest.mark.parametrize(
    "page",
    # The ledger tells of an earlier run, whose tests may have other names by now.
    [page for page in [*PAGES, ROOT / ".ci" / "run"] if page.name != "tested.md"],
    ids=lambda path: path.name,
)
def test_pages_name_commands_that_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    blocks = (
        re.findall(r"```(?:bash)?\n(.*?)```|`([^`\n]+)`", text, flags=re.S) if page.suffix == ".md" else [(text, "")]
    )
    assert not [command for pair in blocks for command in unknown_commands("\n".join(pair))]


@pytest.mark.parametrize(
    "script", ["make shine", "python tools/nothing.py", "python -m nosuch", ".ci/other", ".venv/bin/nosuch --help"]
)
def test_unknown_commands_are_found(script: str) -> None:
    assert len(unknown_commands(f"make test\n{script}\n# make nonsense")) == 1


def test_ci_run_can_be_run() -> None:
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111
    assert any(".ci/run" in step.get("run", "") for _, _, job in JOBS for step in job["steps"])


def test_make_test_checks_the_spelling() -> None:
    assert "codespell" in text_of("Makefile").split("\ntest:")[1].split("\n\n")[0] and pinned("codespell")


# Workflows


def test_there_are_workflows() -> None:
    assert {path.stem for path in WORKFLOWS} >= {"ci", "weekly", "gpu"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_do_little_and_runs_once(path: Path) -> None:
    found = workflow(path)
    assert found["permissions"] == {"contents": "read"}
    assert found["concurrency"]


ALLOWED = {"deploy": {"pages": "write", "id-token": "write"}, "report": {"issues": "write"}}


@each_job
def test_a_job_ends_and_may_do_little(file: str, name: str, job: dict) -> None:
    assert 0 < job["timeout-minutes"] <= 120
    assert job.get("permissions", {}) == ALLOWED.get(name, {})
    assert "continue-on-error" not in job
    for step in job["steps"]:
        if "uses" in step:
            assert re.fullmatch(r"[\w.-]+/[\w./-]+@(v\d+|[0-9a-f]{40})", step["uses"]), step["uses"]
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False
        assert "${{ github.event" not in step.get("run", ""), "what others write is data, not part of a script"


@pytest.mark.parametrize(("file", "job"), [("ci", "deploy"), ("weekly", "report")])
def test_the_last_job_waits_for_all_others(file: str, job: str) -> None:
    jobs = workflow(ROOT / ".github" / "workflows" / f"{file}.yml")["jobs"]
    assert set(jobs[job]["needs"]) == set(jobs) - {job}


# Versions


def supported() -> list[str]:
    """The versions of Python in the classifiers."""
    prefix = "Programming Language :: Python :: 3."
    return [line.rpartition(" ")[2] for line in project()["classifiers"] if line.startswith(prefix)]


def test_every_supported_python_is_tested() -> None:
    versions = supported()
    assert project()["requires-python"] == f">={versions[0]}"
    minors = [int(version.split(".")[1]) for version in versions]
    assert minors == list(range(minors[0], minors[-1] + 1))
    assert f"Python {versions[0]} to {versions[-1]}" in text_of("requirements.txt").splitlines()[0]
    jobs = workflow(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]
    for job in ("tests", "oldest"):
        assert jobs[job]["strategy"]["matrix"]["python-version"] == versions
    assert jobs["tests"]["strategy"]["matrix"]["os"] == ["ubuntu-latest", "macos-latest", "windows-latest"]
    weekly = workflow(ROOT / ".github" / "workflows" / "weekly.yml")["jobs"]
    assert weekly["newest"]["strategy"]["matrix"]["python-version"] == [versions[0], versions[-1]]


@each_job
def test_no_job_uses_another_python(file: str, name: str, job: dict) -> None:
    stated = [step["with"]["python-version"] for step in job["steps"] if "python-version" in step.get("with", {})]
    stated += job.get("strategy", {}).get("matrix", {}).get("python-version", [])
    assert all(version in supported() or version.startswith("${{ matrix.") for version in stated)


def test_every_dependency_has_a_lower_bound() -> None:
    """Or `make oldest` would test versions that nobody has."""
    assert not [r for r in project()["dependencies"] if not re.search(r">=\d", r)]


def test_the_version_is_the_same_everywhere() -> None:
    version = project()["version"]
    assert vitbook.__version__ == version
    assert yaml.safe_load(text_of("CITATION.cff"))["version"] == version
    log = text_of("CHANGELOG.md")
    assert f"## [{version}]" in log or (f"What will be {version}" in log and "## [Unreleased]" in log)


# Licences


def test_licences_agree() -> None:
    assert project()["license"] == "MIT" and text_of("LICENSE").startswith("MIT License\n")
    assert project()["license-files"] == ["LICENSE", "LICENSE-TEXT"]
    assert yaml.safe_load(text_of("CITATION.cff"))["license"] == ["MIT", "CC-BY-4.0"]
    readme = text_of("README.md")
    assert "[MIT License](LICENSE)" in readme and "[CC BY 4.0](LICENSE-TEXT)" in readme
    assert "vitbook/assets/README.md" in readme, "the photographs have licences of their own"


def test_the_licence_of_the_text_is_whole() -> None:
    legal = text_of("LICENSE-TEXT")
    assert "Creative Commons Attribution 4.0 International Public License" in legal
    assert re.findall(r"^Section (\d) – ", legal, flags=re.M) == [str(number) for number in range(1, 9)]


def test_the_citation_is_complete() -> None:
    citation = yaml.safe_load(text_of("CITATION.cff"))
    assert citation["cff-version"] == "1.2.0" and citation["message"] and citation["authors"]
    assert citation["title"] == yaml.safe_load(text_of("_config.yml"))["title"]
    assert citation["repository-code"] == notebook_tool.repository_url()
    # The pages that it may name besides are held to the address too.
    assert {urlsplit(v).netloc for v in citation.values() if str(v).startswith("https:")} <= {
        "github.com",
        site().netloc,
    }


# The README and its neighbours


def site():
    """Where GitHub Pages shows the site."""
    owner, name = notebook_tool.repository_url().removeprefix("https://github.com/").split("/")
    return urlsplit(f"https://{owner.lower()}.github.io/{name}/")


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_the_readme_leads_to_every_chapter(path: Path) -> None:
    readme = text_of("README.md")
    colab = re.search(r"\]\((https://colab[^)]+/blob/[^)]+)\)$", notebook_tool.badge_source(path.name))[1]
    assert f"](chapters/{path.name})" in readme
    assert f"[Colab]({colab})" in readme


def test_the_readme_names_the_site_and_the_badge() -> None:
    readme = text_of("README.md")
    assert f"<{site().geturl()}>" in readme
    assert f"{notebook_tool.repository_url()}/actions/workflows/ci.yml/badge.svg" in readme


def test_the_readme_shows_a_chapters_figure() -> None:
    shown = (ROOT / "_static" / "readme.png").read_bytes()
    assert shown == notebook_tool.readme_figure(), "run: python tools/notebooks.py stamp"
    assert shown.startswith(b"\x89PNG") and re.search(r"!\[[^\]]{40,}\]\(_static/readme\.png\)", text_of("README.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_of_pages_lead_somewhere(page: Path) -> None:
    broken = []
    for link in lint.links(page.read_text(encoding="utf-8")):
        if re.match(r"https?://|mailto:|#", link):
            continue
        if not (page.parent / re.sub("^(colab|repository):", "", link).partition("#")[0]).exists():
            broken.append(link)
    assert not broken


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.stem
)
def test_issue_forms_are_whole(path: Path) -> None:
    form = workflow(path)
    if path.stem == "config":
        assert set(form) <= {"blank_issues_enabled", "contact_links"}
        return
    assert form["name"] and form["description"] and form["body"]
    ids = [part["id"] for part in form["body"] if part["type"] != "markdown"]
    assert len(ids) == len(set(ids))
    assert any(part.get("validations", {}).get("required") for part in form["body"])
    assert all(part["attributes"]["label"] for part in form["body"])
