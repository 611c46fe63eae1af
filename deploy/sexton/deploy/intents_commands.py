"""`sexton intents`: the verb that writes stands in the SDK, the one that reads in the console."""

from __future__ import annotations

from sexton.consumers.commands import intents_app
from sexton.producers.commands import EXAMPLES, emit

__all__ = ["app"]

app = intents_app
app.command(epilog=EXAMPLES, short_help="emit intents from a file of JSON lines")(emit)
