from __future__ import annotations

import os
import pickle
import socket
import threading
import time
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.support.s3_recorder import Recorded, Reply, S3Recorder

from sexton.schemas.errors import InvalidSettings, StoreUnavailable
from sexton.schemas.settings import load
from sexton.storage import (
    BatchDeleter,
    InvalidBatch,
    Kind,
    NoReply,
    StoreSettings,
    UncleanReply,
    open_deleter,
)

MakeDeleter = Callable[[StoreSettings], BatchDeleter]

ODD_KEYS = [
    "a/../b", "b", "./b", "..", "/x", "x", "x//y", "x/y", "a%2Fb", "a/b", "t#1", "t", "a+b", "a b", "<&>\"'",
    " lead", "lead", "trail ", "trail", unicodedata.normalize("NFC", "é"), unicodedata.normalize("NFD", "é"),
    "&amp;", "&", "q?versionId=1", "tab\tin", "\U0001f5dd", "]]>", "a\\b",
]  # fmt: skip


class TestDelete:
    def test_a_batch_is_gone_and_counted(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """A clean reply tells how many keys are gone and under which request id."""
        s3.create_bucket("bucket", {f"k{i}": b"x" for i in range(1001)})
        reply = deleter.submit("bucket", [f"k{i}" for i in range(1000)]).result(10)

        assert (reply.bucket, reply.keys) == ("bucket", 1000)
        assert reply.request_id.startswith("REQ")
        assert 0 < reply.seconds < 10
        assert set(s3.objects("bucket")) == {"k1000"}

    def test_the_request_is_signed_checked_and_verbose(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """The recorder recomputes signature, body hash and CRC32; the reply is asked for in full."""
        deleter.delete("bucket", ["a"])
        (request,) = s3.deletes()

        assert (request.method, request.path, dict(request.query)) == ("POST", "/bucket", {"delete": ""})
        assert request.headers["x-amz-sdk-checksum-algorithm"] == "CRC32"
        assert "x-amz-checksum-crc32" in request.headers
        assert "Boto" in request.headers["user-agent"]
        assert b"Quiet" not in request.body
        assert request.status == 200

    def test_x_9_one_odd_key_goes_and_its_siblings_stay(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """X-9: a key goes byte for byte as it is spelt; every other spelling survives."""
        for key in ODD_KEYS:
            s3.create_bucket("bucket", dict.fromkeys(ODD_KEYS, b"x"))
            deleter.delete("bucket", [key])

            assert set(s3.objects("bucket")) == set(ODD_KEYS) - {key}

    def test_x_9_all_odd_keys_in_one_batch(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """X-9: odd keys do not disturb each other within a request."""
        s3.create_bucket("bucket", dict.fromkeys([*ODD_KEYS, "stays"], b"x"))

        assert deleter.delete("bucket", ODD_KEYS).keys == len(ODD_KEYS)
        assert set(s3.objects("bucket")) == {"stays"}

    def test_a_store_that_escapes_its_own_way(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """Numeric character references in the reply are read, not compared as text."""
        s3.escape = lambda text: "".join(f"&#x{ord(char):x};" for char in text)

        assert deleter.delete("bucket", ODD_KEYS).keys == len(ODD_KEYS)

    def test_bad_batches_raise_at_once(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """What is no batch, and what is no bucket name, never reaches the store."""
        for keys in ([], ["a", "a"], ["a\rb"], [str(i) for i in range(1001)]):
            with pytest.raises(InvalidBatch):
                deleter.submit("bucket", keys)
        with pytest.raises(InvalidBatch, match="not a bucket name"):
            deleter.delete("no/bucket", ["a"])
        assert s3.requests == []


class TestFlight:
    def test_connections_are_reused(self, s3: S3Recorder, make_deleter: MakeDeleter) -> None:
        """With one request in flight, twenty requests to two buckets use one TCP connection."""
        s3.create_bucket("other")
        deleter = make_deleter(StoreSettings(s3.url, requests_in_flight=1))
        for i in range(20):
            deleter.delete(("bucket", "other")[i % 2], ["a"])

        assert len(s3.connections()) == 1
        assert len(s3.deletes()) == 20

    def test_no_more_than_allowed_are_in_flight(self, s3: S3Recorder, make_deleter: MakeDeleter) -> None:
        """Submit waits: with three in flight, the store never sees four at a time, and does see three."""
        running, peak, lock = 0, 0, threading.Lock()

        def slowly(_: Recorded) -> None:
            nonlocal running, peak
            with lock:
                running += 1
                peak = max(peak, running)
            time.sleep(0.05)
            with lock:
                running -= 1

        s3.script(slowly)
        deleter = make_deleter(StoreSettings(s3.url, requests_in_flight=3))
        futures = [deleter.submit("bucket", [f"k{i}"]) for i in range(12)]
        assert sum(not future.done() for future in futures) <= 3
        for future in futures:
            future.result(10)

        assert peak == 3

    def test_a_connection_that_the_store_closed_is_replaced(
        self, s3: S3Recorder, make_deleter: MakeDeleter
    ) -> None:
        """A keep-alive connection that died while idle is noticed before the next request is sent on it."""
        deleter = make_deleter(StoreSettings(s3.url, requests_in_flight=1))
        s3.script(lambda _: Reply(drop=True))
        with pytest.raises(NoReply):
            deleter.delete("bucket", ["a"])
        s3.script(None)

        assert deleter.delete("bucket", ["a"]).keys == 1

    def test_one_deleter_per_process_and_settings(self, settings: StoreSettings) -> None:
        """The same settings give the same deleter, pickled or not; others give another."""
        deleter = open_deleter(settings)

        assert open_deleter(pickle.loads(pickle.dumps(settings))) is deleter
        assert open_deleter(replace(settings, requests_in_flight=2)) is not deleter


class TestUnclean:
    def test_x_5_an_empty_200(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """X-5: 200 with an empty body is never an early success."""
        s3.script(lambda _: Reply(200))
        with pytest.raises(UncleanReply, match="the body is empty") as caught:
            deleter.delete("bucket", ["a", "b"])

        assert caught.value.effect_unknown
        assert len(s3.deletes()) == 1

    def test_x_5_one_of_two_and_a_stranger(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """X-5: a reply that names 1 of 2 keys and a stranger is never an early success."""
        reply = b"<DeleteResult><Deleted><Key>a</Key></Deleted><Deleted><Key>c</Key></Deleted></DeleteResult>"
        s3.script(lambda _: Reply(200, reply))
        with pytest.raises(UncleanReply) as caught:
            deleter.delete("bucket", ["a", "b"])

        assert {(p.key, p.code) for p in caught.value.problems} == {
            ("b", "MissingFromReply"),
            ("c", "NotAskedFor"),
        }

    def test_slow_down_is_sent_once(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """A 503 is told to the caller and not repeated behind its back."""
        s3.script(lambda _: Reply(503, b"<Error><Code>SlowDown</Code><Message>slow</Message></Error>"))
        with pytest.raises(UncleanReply, match=r"SlowDown slow.*bucket=bucket status=503") as caught:
            deleter.delete("bucket", ["a"])

        assert (caught.value.code, caught.value.status, caught.value.exit_code) == ("SlowDown", 503, 75)
        assert len(s3.deletes()) == 1

    def test_a_torn_reply(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """A reply that ends before its Content-Length is no success although its keys are all there."""
        body = b"<DeleteResult><Deleted><Key>a</Key></Deleted></DeleteResult>"
        s3.script(lambda _: Reply(200, body, {"Content-Length": "4000", "Connection": "close"}))
        with pytest.raises(NoReply, match="broke off after 60 of 4000 bytes"):
            deleter.delete("bucket", ["a"])

    def test_no_such_bucket(self, deleter: BatchDeleter) -> None:
        """A missing bucket is told by the store's code, and nothing was done."""
        with pytest.raises(UncleanReply, match="NoSuchBucket") as caught:
            deleter.delete("missing", ["a"])

        assert (caught.value.bucket, caught.value.effect_unknown) == ("missing", False)


class TestCredentials:
    def test_a_wrong_secret_is_told(
        self, s3: S3Recorder, settings: StoreSettings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A wrong secret key is named as such, with what to do; nothing was deleted."""
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        with (
            BatchDeleter(settings) as deleter,
            pytest.raises(UncleanReply, match="SignatureDoesNot") as caught,
        ):
            deleter.delete("bucket", ["a"])

        assert caught.value.hint is not None
        assert "secret key" in caught.value.hint
        assert (caught.value.status, caught.value.effect_unknown) == (403, False)

    def test_a_session_token_is_signed(
        self, s3: S3Recorder, settings: StoreSettings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Temporary credentials send their token under the signature; without it the store refuses."""
        s3.session_token = "token/+="
        with BatchDeleter(settings) as deleter, pytest.raises(UncleanReply, match="InvalidToken"):
            deleter.delete("bucket", ["a"])
        monkeypatch.setenv("AWS_SESSION_TOKEN", "token/+=")
        with BatchDeleter(settings) as deleter:
            deleter.delete("bucket", ["a"])

        assert "x-amz-security-token" in s3.deletes()[-1].headers["authorization"]

    def test_renewed_credentials_are_found_after_a_refusal(
        self, s3: S3Recorder, settings: StoreSettings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """Credentials of a file that the store refuses are looked up anew: no restart is needed."""
        file = tmp_path / "credentials"
        text = "[default]\naws_access_key_id = {}\naws_secret_access_key = {}\n"
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        monkeypatch.setattr("sexton.storage.signing._RESOLVE_EVERY_S", 0.0)
        file.write_text(text.format("old", "old"))
        with BatchDeleter(settings) as deleter:
            first = deleter.delete_all("bucket", ["a"]).result()
            file.write_text(text.format(s3.access_key, s3.secret_key))
            deleter.delete_all("bucket", ["a"]).result()
            last = deleter.delete_all("bucket", ["a"]).result()

        assert first.state(0).kind is Kind.ENVIRONMENT
        assert last.clean

    def test_no_credentials(self, settings: StoreSettings, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without any credentials the error says which variables to set."""
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        with (
            BatchDeleter(settings) as deleter,
            pytest.raises(StoreUnavailable, match="credentials") as caught,
        ):
            deleter.delete("bucket", ["a"])

        assert "AWS_ACCESS_KEY_ID" in str(caught.value.hint)

    def test_another_region_is_signed_for(
        self, s3: S3Recorder, settings: StoreSettings, make_deleter: MakeDeleter
    ) -> None:
        """The region of the settings is the region of the signature; a wrong one is told with a hint."""
        s3.region = "eu-west-3"
        with pytest.raises(UncleanReply, match="AuthorizationHeaderMalformed") as caught:
            make_deleter(settings).delete("bucket", ["a"])
        make_deleter(replace(settings, region="eu-west-3")).delete("bucket", ["a"])

        assert "SEXTON_S3_REGION" in str(caught.value.hint)


class TestNoReply:
    def test_nobody_listens(self, s3: S3Recorder, make_deleter: MakeDeleter) -> None:
        """A refused connection says so, and that nothing was sent."""
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{unused.getsockname()[1]}"
            with pytest.raises(NoReply, match="nothing was sent") as caught:
                make_deleter(StoreSettings(url)).delete("bucket", ["a"])

        assert caught.value.effect_unknown is False
        assert url in str(caught.value)

    def test_a_late_answer(self, s3: S3Recorder, make_deleter: MakeDeleter) -> None:
        """A read timeout is an unknown effect: here the key is gone although no answer came."""
        s3.create_bucket("bucket", {"a": b"x"})
        s3.script(lambda _: Reply(200, delay_s=1.0, act_first=True))
        with pytest.raises(NoReply, match=r"within 0\.2 s, effect unknown") as caught:
            make_deleter(StoreSettings(s3.url, read_timeout_s=0.2)).delete("bucket", ["a"])

        assert caught.value.effect_unknown is True
        assert s3.objects("bucket") == {}
        assert len(s3.deletes()) == 1

    def test_a_broken_connection(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """A connection that breaks before the answer is an unknown effect, and is not tried again."""
        s3.script(lambda _: Reply(drop=True, act_first=True))
        with pytest.raises(NoReply, match="the connection broke, effect unknown") as caught:
            deleter.delete("bucket", ["a"])

        assert caught.value.effect_unknown is True
        assert len(s3.deletes()) == 1


class TestAddress:
    @pytest.fixture(autouse=True)
    def _credentials(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")

    @pytest.mark.parametrize(
        ("bucket", "region", "environ", "host", "path"),
        [
            ("logs", "eu-west-3", {}, "logs.s3.eu-west-3.amazonaws.com", "/"),
            ("a.b", "eu-west-3", {}, "s3.eu-west-3.amazonaws.com", "/a.b"),
            (
                "logs",
                "eu-west-3",
                {"AWS_USE_FIPS_ENDPOINT": "true"},
                "logs.s3-fips.eu-west-3.amazonaws.com",
                "/",
            ),
            (
                "logs",
                "eu-west-3",
                {"AWS_USE_DUALSTACK_ENDPOINT": "true"},
                "logs.s3.dualstack.eu-west-3.amazonaws.com",
                "/",
            ),
            ("logs", "eu-west-3", {"AWS_ENDPOINT_URL_S3": "http://10.0.0.1:9"}, "10.0.0.1:9", "/logs"),
            ("logs", "cn-north-1", {}, "logs.s3.cn-north-1.amazonaws.com.cn", "/"),
            (
                "arn:aws:s3:eu-west-1:123456789012:accesspoint/mine",
                "eu-west-1",
                {},
                "mine-123456789012.s3-accesspoint.eu-west-1.amazonaws.com",
                "/",
            ),
        ],
    )
    def test_botocore_decides(
        self,
        bucket: str,
        region: str,
        environ: dict[str, str],
        host: str,
        path: str,
        monkeypatch: pytest.MonkeyPatch,
        make_deleter: MakeDeleter,
    ) -> None:
        """Addressing style, FIPS, dual-stack, access points and endpoint variables are botocore's choice."""
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        address = make_deleter(StoreSettings(region=region))._signer.address(bucket)

        url = urlsplit(address.url)
        assert (url.netloc, url.path, url.query) == (host, path, "delete")
        assert (address.region, address.service) == (region, "s3")

    def test_a_signature_that_is_not_ours(self, make_deleter: MakeDeleter) -> None:
        """A multi-region access point needs another signature: refused with a reason, never guessed."""
        arn = "arn:aws:s3::123456789012:accesspoint/mfzwi23gnjvgw.mrap"
        with pytest.raises((InvalidSettings, StoreUnavailable)):
            make_deleter(StoreSettings())._signer.address(arn)


def test_settings_hold_only_what_can_be() -> None:
    """No request in flight, or no time at all, is refused where the settings are made."""
    with pytest.raises(InvalidSettings, match="in flight"):
        StoreSettings(requests_in_flight=0)
    with pytest.raises(InvalidSettings, match="timeouts"):
        StoreSettings(read_timeout_s=0)


def test_settings_come_from_the_process_settings() -> None:
    """Endpoint, region and requests in flight are those of `SEXTON_...`."""
    environ = {
        "SEXTON_S3_ENDPOINT_URL": "http://127.0.0.1:9",
        "SEXTON_S3_REGION": "eu-west-3",
        "SEXTON_REAPER_REQUESTS_IN_FLIGHT": "3",
    }

    assert StoreSettings.of(load(environ)) == StoreSettings("http://127.0.0.1:9", "eu-west-3", 3)


def test_a_fork_forgets_its_parents_deleters(settings: StoreSettings) -> None:
    """A forked child opens a deleter of its own."""
    parent = open_deleter(settings)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if open_deleter(settings) is not parent else 1)

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
