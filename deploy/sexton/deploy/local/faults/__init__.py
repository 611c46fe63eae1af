"""A recording, fault-playing proxy in front of an S3 server.

`running` starts one in this process, `sexton local faults` as a process, `sexton local up --faults FILE` in
front of the local stack's store. What it plays stands in a file of rules, what came through in a request log.

    request.py    what a request is about: bucket, operation, keys
    rules.py      what a rule matches and plays, as data
    fields.py     the file's fields, their checks and their table
    decisions.py  which rules play on a request: pure, with the state and the instant passed in
    throttling.py a store that takes so many writes per second and prefix
    replies.py    answers of the store's kind, made or mended
    source.py     the file, read again when it changes
    http.py       HTTP/1.1 messages as they came, by h11
    proxy.py      the server
    inprocess.py, server.py   the two ways to run it
"""

from __future__ import annotations

from sexton.deploy.local.faults.inprocess import Running, running
from sexton.deploy.local.faults.log import Logged, Played, read_log
from sexton.deploy.local.faults.rules import InvalidFaults

__all__ = ["InvalidFaults", "Logged", "Played", "Running", "read_log", "running"]
