"""What of the process' settings reaches the store, and what no store can work with."""

from __future__ import annotations

from typing import Any

import pytest

from sexton.schemas.errors import InvalidSettings
from sexton.schemas.settings import load
from sexton.storage import StoreSettings


def test_each_setting_of_the_store_reaches_it() -> None:
    """A time-out or a region that is set and not used would be found out in production."""
    given = load(
        {
            "SEXTON_S3_ENDPOINT_URL": "http://127.0.0.1:1",
            "SEXTON_S3_REGION": "eu-west-3",
            "SEXTON_S3_READ_TIMEOUT_S": "7.5",
            "SEXTON_REAPER_REQUESTS_IN_FLIGHT": "3",
        }
    )

    assert StoreSettings.of(given) == StoreSettings(
        "http://127.0.0.1:1", "eu-west-3", requests_in_flight=3, read_timeout_s=7.5
    )
    assert StoreSettings.of(load({})) == StoreSettings()


@pytest.mark.parametrize(
    "wrong",
    [
        {"requests_in_flight": 0},
        {"connect_timeout_s": 0},
        {"read_timeout_s": 0},
        {"connect_timeout_s": -1.0},
    ],
)
def test_a_store_without_time_or_requests_is_refused(wrong: dict[str, Any]) -> None:
    """It would wait for ever, or not at all."""
    with pytest.raises(InvalidSettings):
        StoreSettings(**wrong)
    assert StoreSettings(requests_in_flight=1, connect_timeout_s=0.1, read_timeout_s=0.1)
