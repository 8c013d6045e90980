"""Webhook: an address of the user's that takes notices as JSON.

It is the value of ``MNTRAIN_WEBHOOK`` in the job's environment, so it is kept and hidden as other
secrets are. It is never logged: whoever has it can write there.
"""

from __future__ import annotations

import json
from urllib.parse import urlsplit

from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from jupyter_mntrain.agent.gang.notice import TIMEOUT_S, Channel, Notice


class Webhook(Channel):
    def __init__(self, url: str) -> None:
        self._url = url
        self.where = f"the webhook at {urlsplit(url).hostname}"

    async def send(self, notice: Notice) -> str | None:
        client = SimpleAsyncHTTPClient(force_instance=True)
        try:
            request = HTTPRequest(
                self._url,
                method="POST",
                headers={"Content-Type": "application/json"},
                body=json.dumps(notice.body).encode(),
                connect_timeout=TIMEOUT_S,
                request_timeout=TIMEOUT_S,
                follow_redirects=False,
            )
            answer = await client.fetch(request, raise_error=False)
        except (OSError, ValueError) as error:
            return type(error).__name__
        except HTTPClientError as error:  # it hung, or closed the connection without an answer
            return error.message or type(error).__name__
        finally:
            client.close()
        return None if answer.code < 300 else f"status {answer.code}"
