from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.support.s3_recorder import Recorded, Reply, S3Recorder

from sexton.schemas.errors import InvalidSettings, StoreUnavailable
from sexton.schemas.settings import load
from sexton.storage import (
    READY,
    BatchDeleter,
    BucketUnusable,
    Effect,
    Kind,
    StoreRefused,
    StoreSettings,
    open_deleter,
)

MakeDeleter = Callable[[StoreSettings], BatchDeleter]


class TestDelete:
    def test_a_batch_is_gone_and_counted(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """A clean result says how many keys are gone and under which request id."""
        s3.create_bucket("bucket", {f"k{i}": b"x" for i in range(1001)})
        result = deleter.delete_all("bucket", [f"k{i}" for i in range(1000)]).result(10)

        assert (result.bucket, result.count, result.clean, result.requests) == ("bucket", 1000, True, 1)
        assert result.request_id.startswith("REQ")
        assert 0 < result.seconds < 10
        assert set(s3.objects("bucket")) == {"k1000"}

    def test_the_request_is_signed_checked_and_verbose(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """The recorder recomputes signature, body hash and CRC32; the reply is asked for in full."""
        deleter.delete_all("bucket", ["a"]).result(10)
        (request,) = s3.deletes()

        assert (request.method, request.path, dict(request.query)) == ("POST", "/bucket", {"delete": ""})
        assert request.headers["x-amz-sdk-checksum-algorithm"] == "CRC32"
        assert "x-amz-checksum-crc32" in request.headers
        assert "Boto" in request.headers["user-agent"]
        assert b"Quiet" not in request.body
        assert request.status == 200


class TestFlight:
    def test_connections_are_reused(self, s3: S3Recorder, make_deleter: MakeDeleter) -> None:
        """With one request in flight, twenty requests to two buckets use one TCP connection."""
        s3.create_bucket("other")
        deleter = make_deleter(StoreSettings(s3.url, requests_in_flight=1))
        for i in range(20):
            assert deleter.delete_all(("bucket", "other")[i % 2], ["a"]).result(10).clean

        assert len(s3.connections()) == 1
        assert len(s3.deletes()) == 20

    def test_no_more_than_allowed_are_in_flight(self, s3: S3Recorder, make_deleter: MakeDeleter) -> None:
        """The call waits: with three in flight, the store never sees four at a time, and does see three."""
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
        futures = [deleter.delete_all("bucket", [f"k{i}"]) for i in range(12)]
        assert sum(not future.done() for future in futures) <= 3 + READY
        for future in futures:
            assert future.result(10).clean

        assert peak == 3

    def test_a_connection_that_the_store_closed_is_replaced(
        self, s3: S3Recorder, make_deleter: MakeDeleter
    ) -> None:
        """A keep-alive connection that died while idle is noticed before the next request is sent on it."""
        deleter = make_deleter(StoreSettings(s3.url, requests_in_flight=1))
        s3.script(lambda _: Reply(drop=True))
        assert deleter.delete_all("bucket", ["a"]).result(10).state(0).kind is Kind.UNKNOWN
        s3.script(None)

        assert deleter.delete_all("bucket", ["a"]).result(10).clean

    def test_one_deleter_per_process_and_settings(self, settings: StoreSettings) -> None:
        """The same settings give the same deleter, pickled or not; others give another."""
        deleter = open_deleter(settings)

        assert open_deleter(pickle.loads(pickle.dumps(settings))) is deleter
        assert open_deleter(replace(settings, requests_in_flight=2)) is not deleter


class TestCredentials:
    def test_a_wrong_secret_is_told(
        self, s3: S3Recorder, settings: StoreSettings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A wrong secret key is named as such, a single call says what to do; nothing was deleted."""
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        with BatchDeleter(settings) as deleter:
            state = deleter.delete_all("bucket", ["a"]).result(10).state(0)
            with pytest.raises(StoreRefused, match="SignatureDoesNot") as caught:
                deleter.calls.put("bucket", "a", b"")

        assert (state.code, state.status, state.effect) == ("SignatureDoesNotMatch", 403, Effect.NONE)
        assert "secret key" in str(caught.value.hint)

    def test_a_session_token_is_signed(
        self, s3: S3Recorder, settings: StoreSettings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Temporary credentials send their token under the signature; without it the store refuses."""
        s3.session_token = "token/+="
        with BatchDeleter(settings) as deleter:
            assert deleter.delete_all("bucket", ["a"]).result(10).state(0).code == "InvalidToken"
        monkeypatch.setenv("AWS_SESSION_TOKEN", "token/+=")
        with BatchDeleter(settings) as deleter:
            assert deleter.delete_all("bucket", ["a"]).result(10).clean

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
        """Without any credentials the state says so, and a single call which variables to set."""
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        with BatchDeleter(settings) as deleter:
            state = deleter.delete_all("bucket", ["a"]).result(10).state(0)
            with pytest.raises(StoreUnavailable, match="credentials") as caught:
                deleter.calls.put("bucket", "a", b"")

        assert (state.code, "credentials" in state.message) == ("CredentialsUnavailable", True)
        assert "AWS_ACCESS_KEY_ID" in str(caught.value.hint)

    def test_another_region_is_signed_for(
        self, s3: S3Recorder, settings: StoreSettings, make_deleter: MakeDeleter
    ) -> None:
        """The region of the settings is that of the signature; a single call in a wrong one has a hint."""
        s3.region = "eu-west-3"
        wrong, right = make_deleter(settings), make_deleter(replace(settings, region="eu-west-3"))
        state = wrong.delete_all("bucket", ["a"]).result(10).state(0)
        with pytest.raises(StoreRefused) as caught:
            wrong.calls.put("bucket", "a", b"")

        assert (state.kind, state.code) == (Kind.BUCKET, "AuthorizationHeaderMalformed")
        assert "SEXTON_S3_REGION" in str(caught.value.hint)
        assert right.delete_all("bucket", ["a"]).result(10).clean


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
        with pytest.raises(BucketUnusable):
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
