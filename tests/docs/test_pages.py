"""What the pages say of the code, compared with the code."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import io
import json
import re
import tomllib
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import get_args

import docs.generate
import prometheus_client
import pytest
import typer
from tests.support import pages
from tests.support.pages import PAGES, ROOT

import sexton.producers
from sexton.consumers.dead_letters_topics import REPLAY
from sexton.deploy.demo.generations_checks import Expected, checks
from sexton.deploy.main import NOUNS, run
from sexton.issuer.metrics import Metrics
from sexton.issuer.operations.acknowledge_transaction import AcknowledgeTransaction
from sexton.issuer.operations.barrier import Ends
from sexton.issuer.operations.commit_transaction import CommitTransaction
from sexton.issuer.operations.start_transaction import StartTransaction
from sexton.producers import Limits
from sexton.schemas.codec import SCHEMAS
from sexton.schemas.events import Action, DeletionIntent, Guard, OutcomeKind
from sexton.schemas.forms import from_json
from sexton.schemas.guards import TransactionGuard
from sexton.schemas.intents import check_intent
from sexton.schemas.settings import explain, load
from sexton.streaming_jobs.reaper import progress
from sexton.streaming_jobs.reaper.counts import Counts

DOCS = ROOT / "docs"
EXAMPLES = sorted(file for file in (DOCS / "examples").glob("**/*") if file.is_file())
PARTS = ("schemas", "storage", "issuer", "producers", "streaming_jobs", "consumers", "deploy")
FILLED = {"intent_id": "given-by-emit", "emitted_at": datetime.now(UTC), "emitter": "given-by-emit"}
NO_PLACE_HERE = re.compile(
    r"p[y]pi[.]o|python[h]osted|mav[e]n[.]org|npm[j]s[.]|proxy[.]go[l]ang|deb[.]deb[i]an|spark-pack[a]ges[.]org"
    r"|/wor[k]/|/roo[t]/|/home/\w|/tm[p]/\w+/\w+/"
)


def source(*folders: str) -> str:
    """All Python code of some parts."""
    return "\n".join(
        file.read_text(encoding="utf-8") for folder in folders for file in (ROOT / folder).glob("**/*.py")
    )


def outcome_reasons() -> set[str]:
    """The reasons that the reaper itself gives what waits or is a dead letter; a store's have capitals."""
    reasons = set()
    root = ROOT / "streaming_jobs"
    for file in (root / "sexton/streaming_jobs/reaper").glob("**/*.py"):
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match call:
                case ast.Call(func=ast.Name("ItemOutcome"), args=[ast.Attribute(attr="REFUSED"), *_]):
                    continue  # told in the detail of its keys
                case ast.Call(func=ast.Name("ItemOutcome"), args=[_, ast.Constant(str(reason)), *_]):
                    reasons.add(reason)
                case ast.Call(func=ast.Name("ItemOutcome"), args=[_, ast.Name(name), *_]) if name.isupper():
                    module = importlib.import_module(".".join(file.relative_to(root).with_suffix("").parts))
                    reasons.add(getattr(module, name))
    return {reason for reason in reasons if reason.islower()}


def texts(*folders: str) -> set[str]:
    """Every text in the code of some parts, and the plain pieces of those with values in them."""
    nodes = (
        node
        for folder in folders
        for file in (ROOT / folder).glob("**/*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    )
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as they are made when it is shown."""
    found = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Every link to a file or heading of the tree resolves."""
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), target


@pytest.mark.parametrize("file", [*PAGES, *EXAMPLES], ids=lambda file: file.name)
def test_nothing_of_one_machine_is_in_it(file: Path) -> None:
    """Neither registry hosts nor paths of the machine it was written on."""
    assert NO_PLACE_HERE.findall(file.read_text(encoding="utf-8")) == []


def test_every_page_is_linked_from_the_readme() -> None:
    """Nobody has to know that a page exists to find it."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")

    assert [page.name for page in DOCS.glob("*.md") if f"docs/{page.name}" not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_exists(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Noun, verb and flags of each command that a page names are known to the command's help."""
    for _, *words in pages.commands(page):
        name = words[0] if words else "--help"
        noun = next((noun for noun in NOUNS if noun.name == name), None)
        if noun is None:
            assert run([name]) == 0, words
            continue
        module, _, attribute = noun.target.partition(":")
        verbs = isinstance(getattr(importlib.import_module(module), attribute), typer.Typer)
        capsys.readouterr()
        assert run([*words[: 2 if verbs and len(words) > 1 else 1], "--help"]) == 0, words
        reported = capsys.readouterr().out
        flags = [kind for kind in words if kind.startswith("--")]
        assert [flag for flag in flags if not re.search(rf"{flag}\b", reported)] == []


def test_hints_name_pages_and_headings_that_exist() -> None:
    """What an error's hint sends its reader to is there, as a heading of that page."""
    named = [hint for text in texts(*PARTS) for hint in re.findall(r"docs/(\w+\.md)(?:, '([^']+)')?", text)]
    headings = {page.name: re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE) for page in PAGES}

    assert ("operating.md", "A damaged checkpoint") in named
    assert [(page, title) for page, title in named if title and title not in headings[page]] == []
    assert [page for page, _ in named if page not in headings] == []


def test_every_message_of_the_runbook_is_one_of_the_code() -> None:
    """What the reaper is said to say when it stops or waits, it says; each case has a section of its own."""
    text = (DOCS / "operating.md").read_text(encoding="utf-8")
    section = text.partition("## When it stops, or waits\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", section.partition("\n### ")[0], re.MULTILINE)[1:]
    said = texts("streaming_jobs", "storage", "schemas", "issuer")
    pieces = {
        piece.strip()
        for reported, _ in rows
        for message in re.findall(r"`([^`]+)`", reported)
        for piece in message.split("...")
        if piece.strip(" :,")
    }
    linked = set(re.findall(r"\]\(#([\w-]+)\)", "".join(where for _, where in rows)))
    cases = set(re.findall(r"^### (.+)$", section, re.MULTILINE)) - {"A new checkpoint"}

    assert len(pieces) > 20
    assert [piece for piece in pieces if not any(piece in each for each in said)] == []
    assert {re.sub(r"[^\w\- ]", "", case.lower()).replace(" ", "-") for case in cases} == linked


def test_every_setting_on_a_page_exists() -> None:
    """No page names a variable that the settings do not have."""
    known = {row.variable for row in explain(environ={})}
    named = {
        name for page in PAGES for name in re.findall(r"\bSEXTON_[A-Z0-9_]*[A-Z0-9]\b", page.read_text())
    }

    assert named - known == set()


def test_the_settings_page_is_fresh() -> None:
    """docs/settings.md is what `python -m docs.generate` writes."""
    assert docs.generate.SETTINGS.read_text(encoding="utf-8") == docs.generate.settings_page()


def test_the_settings_file_on_the_page_is_one(tmp_path: Path) -> None:
    """The TOML that the page shows is taken."""
    (text,) = pages.blocks(DOCS / "settings.md", "toml")
    file = tmp_path / "sexton.toml"
    file.write_text(text)

    settings = load({"SEXTON_CONFIG": str(file)})

    assert settings.allow == ("backups", "layers/tenants/")
    assert settings.kafka_extra == tomllib.loads(text)["kafka_extra"]


@pytest.mark.parametrize(
    "line", list(pages.examples(DOCS / "records.md")), ids=lambda line: str(line["action"])[:60]
)
def test_examples_of_intents_are_intents(line: dict[str, object]) -> None:
    """Each JSON line can be read, and breaks no rule."""
    check_intent(from_json(DeletionIntent, line, defaults=FILLED))


def test_examples_show_every_guard_and_action() -> None:
    """No guard and no action is without an example."""
    shown = json.dumps(list(pages.examples(DOCS / "records.md")))

    kinds = [*get_args(Guard), *get_args(Action)]
    assert [kind.__name__ for kind in kinds if f'"{kind.__name__}"' not in shown] == []


def test_words_and_reasons_are_listed() -> None:
    """Every outcome, and every reason of a verdict, a deferral or a dead letter, is on the page."""
    text = (DOCS / "records.md").read_text(encoding="utf-8")
    reasons = set(re.findall(r'UndecodableRecord\(\s*"([a-z-]+)"', source("schemas"))) - {"null"}
    rooms = source("streaming_jobs/sexton/streaming_jobs/reaper/guards", "schemas/sexton/schemas/actions")
    stage = ROOT / "streaming_jobs/sexton/streaming_jobs/reaper/judge.py"
    judge = rooms + stage.read_text(encoding="utf-8")
    reasons |= set(re.findall(r'Rejected\(\s*\w+, "([a-z-]+)"', source("streaming_jobs")))
    verdicts = r'(?:Verdict\(VerdictResult\.\w+, |NotYet\(\s*|Never\(\s*|Refusal\(\s*)"([a-z-]+)"'
    reasons |= set(re.findall(verdicts, judge))
    reaper = source("streaming_jobs/sexton/streaming_jobs/reaper")
    for written in (r'_deferred\(decoded, "([a-z-]+)"', r'Kind\.FINAL,\s*"(\w+)"'):
        found = set(re.findall(written, reaper))
        assert found, written
        reasons |= found
    reasons |= {REPLAY, *outcome_reasons()}
    assert {
        "superseded",
        "not-before",
        "trailing-bytes",
        "too-large",
        "prefix-refused",
        "StillWritten",
    } <= reasons
    assert {"earlier-phase", "slow-bucket", "expired", "repeat", "StillWritten"} <= reasons

    assert {name for name in {*reasons, *OutcomeKind} if f"| `{name}` |" not in text} == set()


def test_metrics_of_page_and_code_are_the_same() -> None:
    """What the operating page names exists, and what exists is named."""
    text = (DOCS / "operating.md").read_text(encoding="utf-8")
    families = [*Metrics().registry.collect(), *prometheus_client.REGISTRY.collect()]
    assert progress.BARRIERS
    exist = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in families
        if family.name.startswith("sexton_")
    }

    assert set(re.findall(r"\bsexton_\w+", text)) == exist


def test_the_progress_line_is_the_one_that_is_printed() -> None:
    """The JSON line on the operating page has the fields of a real one."""
    (text,) = pages.blocks(DOCS / "operating.md", "json")
    out = io.StringIO()
    progress.Progress(out).settled(0, "intents", Counts(), (), 1.0)

    assert json.loads(text).keys() == json.loads(out.getvalue()).keys()


def test_every_event_of_the_reaper_is_listed() -> None:
    """What the reaper says has a row on the operating page, and nothing else has one."""
    text = (DOCS / "operating.md").read_text(encoding="utf-8")
    table = text[text.index("| `event` | said when |") :].partition("\n\n")[0]
    said = source("streaming_jobs/sexton/streaming_jobs/reaper")
    said += (ROOT / "streaming_jobs/sexton/streaming_jobs/commands.py").read_text(encoding="utf-8")
    written = set(re.findall(r'(?:\b(?:self|progress)\.note|\breport)\(\s*"([a-z_]+)"', said))
    written |= set(re.findall(r'"event": "([a-z_]+)"', said))

    listed = set(re.findall(r"^\| `([a-z_]+)` \|", table, re.MULTILINE))

    assert listed - {"event"} == written - {"micro_batch"}


def test_problem_types_are_listed() -> None:
    """Every type of a problem that the issuer answers with is on the HTTP page."""
    text = (DOCS / "http.md").read_text(encoding="utf-8")
    types = set(re.findall(r'RequestRefused\(\s*"([a-z-]+)"', source("issuer")))
    types |= set(re.findall(r', "([a-z]+-[a-z-]+)", [45]\d\d\)', source("issuer")))
    assert {"tenant-dropped", "wrong-topic"} <= types

    assert {name for name in types if f"`{name}`" not in text} == set()


def test_the_sdk_page_tells_of_every_error_and_limit() -> None:
    """All error classes stand in the page's tree, and limits have the defaults that it says."""
    text = (DOCS / "sdk.md").read_text(encoding="utf-8")
    errors = [
        name
        for name in sexton.producers.__all__
        if isinstance(kind := getattr(sexton.producers, name), type) and issubclass(kind, Exception)
    ]

    assert [name for name in errors if not re.search(rf"── {name}\b|^{name}$", text, re.MULTILINE)] == []
    assert Limits() == Limits(100_000, 256 * 1024 * 1024, 1_000_000, 10_000, 0.005, 30.0, 120.0, 30.0)
    assert [name for name in Limits.__slots__ if f"`{name}`" not in text] == []


def test_the_fakes_of_the_sdk_page_work() -> None:
    """The example of a service's test is one that passes."""
    (example,) = [text for text in pages.blocks(DOCS / "sdk.md", "python") if "FakeSexton(" in text]

    exec(compile(example, "sdk.md", "exec"), {})


def test_the_page_for_other_languages_names_the_schema_and_what_its_versions_start_with() -> None:
    """The file is that of the newest version, and the table has the header of each."""
    page = (DOCS / "wire.md").read_text(encoding="utf-8")
    ours = [schema for schema in SCHEMAS if schema.name == DeletionIntent.__name__]
    newest = f"deletion_intent.v{max(schema.version for schema in ours)}.avsc"
    assert f"The schema is `{newest}`" in page
    rows = dict(re.findall(r"^\| (\d) \| `(c3 01 [0-9a-f ]+)` \|$", page, re.MULTILINE))
    assert rows == {str(schema.version): schema.header.hex(" ") for schema in ours}


def test_the_page_for_other_languages_names_what_a_transaction_needs() -> None:
    """Each field of the guard, of the commit and of its deadlist is told, and where the calls are."""
    page = (DOCS / "wire.md").read_text(encoding="utf-8").partition("## 7. ")[2]
    named = {field.name for field in dataclasses.fields(TransactionGuard)}
    named |= {*CommitTransaction.__struct_fields__, *Ends.__struct_fields__} - {"caller"}
    assert not [name for name in named if f"`{name}`" not in page]
    for call in (StartTransaction, CommitTransaction, AcknowledgeTransaction):
        assert f"POST {call.path}`" in page


def test_the_changelog_knows_this_version() -> None:
    """The version that is installed has a section."""
    assert f"## [{version('sexton')}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_readme_shows_checks_of_the_demo() -> None:
    """Each promise in the README's piece of the demo's output is one that the demo checks."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.findall(r"^│ (.+?) +│ yes  │$", text, re.MULTILINE)

    assert shown
    assert set(shown) <= set(checks(Expected((), (), (), b"")))
