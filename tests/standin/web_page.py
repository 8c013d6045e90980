"""Web page that a webhook writes to, on a free port of this machine."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal


class Listener:
    """A web page that stores what it is sent.

    Args:
        busy: so many times it does not.
        how: what it does then: refuses, or hangs until it is closed, or closes without an answer.
    """

    def __init__(
        self, busy: int = 0, how: Literal["refuses", "hangs", "closes"] = "refuses"
    ) -> None:
        self.taken: list[dict[str, Any]] = []
        self.asked = 0
        self._is_closed = threading.Event()
        listener = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                listener.asked += 1
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if listener.asked > busy:
                    listener.taken.append(json.loads(body))
                elif how != "refuses":
                    if how == "hangs":
                        listener._is_closed.wait()
                    self.close_connection = True
                    return
                self.send_response(204 if listener.asked > busy else 503)
                self.end_headers()

            def log_message(self, *words: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook?key=123"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._is_closed.set()
        self.server.shutdown()
        self.server.server_close()
