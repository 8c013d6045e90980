"""Trust routes: drivers exchange revocations and renewed certificates through the agent."""

from __future__ import annotations

from jupyter_mntrain.agent.http.base import AgentHandler
from jupyter_mntrain.model.api import TrustNews


class TrustHandler(AgentHandler):
    def get(self) -> None:
        self.answer(self.node.trust.news())

    def put(self) -> None:
        news = self.body_as(TrustNews)
        self.node.take_news(news, who=self.caller_name, where=self.request.remote_ip or "")
        self.answer({})
