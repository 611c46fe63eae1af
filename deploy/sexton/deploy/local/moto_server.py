"""moto's S3 application alone, as a process: `python -m sexton.deploy.local.moto_server --port P`.

It keeps objects in memory and accepts any signature: good for a demonstration, no model of AWS' refusals.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from types import FrameType
from typing import NoReturn

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--port", type=int, required=True, help="port on 127.0.0.1")
    port = parser.parse_args(arguments).port
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)

    from moto.moto_server.werkzeug_app import MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server

    class KeepAlive(MotoRequestHandler):
        """One connection for many requests, as every S3 server allows."""

        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    application = create_backend_app("s3")
    make_server("127.0.0.1", port, application, threaded=True, request_handler=KeepAlive).serve_forever()


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(0)


if __name__ == "__main__":
    main()
