"""The demo: its story on real parts, and each of its checks against a planted violation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest
from tests.conftest import Cli
from tests.support.chain import Chain

from sexton.deploy.demo import command, given
from sexton.deploy.demo.checks import COMMON, Result, check
from sexton.deploy.demo.generations_story import GARBAGE, GenerationsStory
from sexton.deploy.demo.story import Story
from sexton.deploy.demo.transactions_story import TransactionsStory
from sexton.schemas import events
from sexton.schemas.errors import EnvironmentFault, SextonError, UsageError
from sexton.schemas.settings import load
from sexton.storage import ObjectStore, StoreSettings, open_deleter

pytestmark = [pytest.mark.real, pytest.mark.spark]


class Silent:
    """A narrator for nobody."""

    def chapter(self, title: str) -> None:
        """Say nothing."""

    def say(self, text: str) -> None:
        """Say nothing."""


def broken(story: Story) -> set[str]:
    """The promises that do not hold as things are now."""
    results = check(story.evidence(), story.checks())
    return {result.promise for result in results if not result.held}


def promise(story: Story, start: str) -> str:
    """The promise that starts like this."""
    (found,) = [promise for promise in story.checks() if promise.startswith(start)]
    return found


class Planter:
    """Plants one violation at a time on real parts, and takes it back where that can be done."""

    def __init__(self, chain: Chain, store: ObjectStore, story: Story) -> None:
        self.chain, self.store, self.story = chain, store, story

    def keys_of(self, chapter: str) -> list[str]:
        """Keys that an intent of a chapter has named."""
        ids = self.story.asked[chapter]
        return [
            key
            for intent in self.story.evidence().intents
            if intent.intent_id in ids and isinstance(intent.action, events.DeleteObjects)
            for key in intent.action.phases[0]
        ]

    @contextmanager
    def resurrected(self, key: str) -> Iterator[None]:
        """An object that was deleted is there again."""
        self.store.put(self.chain.bucket, key, b"again")
        yield
        self.vanish(key)

    @contextmanager
    def buried(self, key: str) -> Iterator[None]:
        """An object is gone that should be there."""
        body = self.store.get(self.chain.bucket, key)
        self.vanish(key)
        yield
        self.store.put(self.chain.bucket, key, body)

    def vanish(self, key: str) -> None:
        """Delete behind the back of everything."""
        deleter = open_deleter(StoreSettings.of(self.chain.settings))
        assert deleter.delete_all(self.chain.bucket, [key]).result().clean


@pytest.mark.slow
def test_demo_story_holds_and_each_check_can_fail(chain: Chain, store: ObjectStore) -> None:
    """Every check holds after the story, and a violation planted for it on real parts makes it fail.

    What a story on an installation that is there waits for, and refuses, is asked on the way.
    """

    def reap() -> None:
        chain.reap()

    given.check_fresh(chain.settings, chain.bucket)
    story = GenerationsStory(chain.settings, chain.bucket, reap, Silent())
    story.play()
    assert broken(story) == set()
    given.await_reaper(chain.settings)
    with pytest.raises(UsageError, match="intents already"):
        given.check_fresh(chain.settings, chain.bucket)
    planter = Planter(chain, store, story)

    with planter.resurrected(planter.keys_of("compaction")[0]):
        assert promise(story, "what the compaction") in broken(story)
        assert promise(story, "I7") in broken(story)
    with planter.resurrected(planter.keys_of("before")[0]):
        assert promise(story, "what node A asked for before") in broken(story)
    with planter.buried(planter.keys_of("after")[0]):
        assert {promise(story, "what stale node A"), promise(story, "I1"), promise(story, "I7")} <= broken(
            story
        )
    with planter.buried(story.layers["c0ffee5ad1024b8e9f7a6b5c4d3e2f10"][0]):
        assert broken(story) == {promise(story, "I1"), promise(story, "I7")}
    assert broken(story) == set()

    story.granted.append(story.granted[-1])
    assert broken(story) == {promise(story, "I3")}
    story.granted.pop()
    chain.emit(chain.intent("t", 1, ["forgotten"]))
    assert broken(story) == {promise(story, "I2")}
    with given.pending(chain.settings) as pending:
        assert pending() == 1
        chain.reap()
        assert broken(story) == set()
        chain.produce(GARBAGE)
        assert pending() == 1
        chain.reap()
        assert pending() == 0
    assert broken(story) == {promise(story, "garbage")}


@pytest.mark.slow
def test_m_9_the_story_of_transactions_holds_and_each_check_can_fail(
    chain: Chain, store: ObjectStore
) -> None:
    """M-1, M-9: a relocation and a zombie; a violation planted for each promise makes it fail."""
    settings = TransactionsStory.prepared(chain.settings)

    def reap() -> None:
        chain.reap(reaper_tenant_prefix=settings.reaper_tenant_prefix)

    story = TransactionsStory(settings, chain.bucket, reap, Silent())
    story.play()
    assert broken(story) == set()
    planter = Planter(chain, store, story)

    with planter.resurrected(planter.keys_of("relocation")[0]):
        assert broken(story) == {promise(story, "what the relocation"), promise(story, "I7")}
    with planter.buried(planter.keys_of("zombie")[0]):
        stays = promise(story, "what the zombie put")
        assert broken(story) == {stays, promise(story, "I1"), promise(story, "I7")}
    with planter.resurrected(story.zombies[0]):
        assert broken(story) == {promise(story, "after that"), promise(story, "I7")}
    story.too_early = story.collected
    assert broken(story) == {promise(story, "nothing of the zombie")}


@pytest.mark.parametrize("bucket", ["", "s3://layers", "layers/a"])
def test_what_is_no_bucket_is_wrong_usage(bucket: str, cli: Cli) -> None:
    """It is told before anything outside is asked."""
    done = cli("demo", "--bucket", bucket, env={"SEXTON_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"})

    assert (done.returncode, done.stderr.splitlines()[0]) == (2, f"error: not a bucket name: '{bucket}'")


def test_a_reaper_that_does_not_get_on_is_told() -> None:
    """Who waits for a reaper that does not run is told how much waits, with exit code 75."""
    with pytest.raises(EnvironmentFault, match="has not processed 3 of the intents"):
        given.await_reaper(load({}), 0.0, lambda _: nullcontext(lambda: 3))


def test_who_waits_for_a_reaper_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """A reaper that is slow, or not there, is not waited for silently."""
    said: list[str] = []

    def count() -> int:
        said.append(capsys.readouterr().err)
        return 0 if said[-1] else 3

    given.await_reaper(load({}), 60.0, lambda _: nullcontext(count))

    assert said[-1] == "waiting for the reaper that runs on these topics\n"


def test_demo_fails_when_a_check_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A promise that did not hold ends the demo with exit code 1."""
    monkeypatch.setattr(command, "_run", lambda *_: [Result("a", ()), Result("b", ("fault",))])

    with pytest.raises(SextonError) as caught:
        command.demo(fast=True)

    assert caught.value.exit_code == 1


@pytest.mark.slow
def test_demo_command_runs_from_nothing(cli: Cli) -> None:
    """`sexton demo` starts its own stack, tells the slow steps, then the story, and exits with 0."""
    done = cli("demo", timeout=240)

    assert done.returncode == 0, done.stderr
    for step in ("kafka: ready", "redis: ready", "s3: ready", "issuer: ready", "spark: ready"):
        assert step in done.stderr
    assert "Every check held" in done.stdout
    assert all(promise in done.stdout for promise in COMMON)
