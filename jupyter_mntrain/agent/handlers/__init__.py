"""The agent's HTTP face, one file per family of routes; the routes stand in ``model/api.py``."""

from __future__ import annotations

from typing import Any

from tornado.routing import URLSpec
from tornado.web import Application

from jupyter_mntrain.agent.handlers.base import NotFound
from jupyter_mntrain.agent.handlers.jobs import Attempts, Job, JobJournal, JobLog, Jobs, JobStop
from jupyter_mntrain.agent.handlers.leases import LeaseItem, Leases
from jupyter_mntrain.agent.handlers.node import NodeItem, NodeStream
from jupyter_mntrain.agent.handlers.probe import ProbeListenHandler, ProbeSendHandler
from jupyter_mntrain.agent.node import Node
from jupyter_mntrain.agent.watches import Watches

_JOB = r"/v1/jobs/(?P<job_id>j-[0-9a-f]{8})"
_ATTEMPT = r"(?P<attempt>[1-9][0-9]{0,5})"


def application(node: Node, watches: Watches) -> Application:
    """All routes of :mod:`jupyter_mntrain.model.api`."""
    own: dict[str, Any] = {"node": node, "watches": watches}
    routes = [
        (r"/v1/node", NodeItem),
        (r"/v1/stream", NodeStream),
        (r"/v1/leases", Leases),
        (rf"/v1/leases/(?P<job_id>j-[0-9a-f]{{8}})/{_ATTEMPT}", LeaseItem),
        (r"/v1/jobs", Jobs),
        (_JOB, Job),
        (rf"{_JOB}/attempts/{_ATTEMPT}", Attempts),
        (rf"{_JOB}/stop", JobStop),
        (rf"{_JOB}/journal", JobJournal),
        (rf"{_JOB}/log", JobLog),
        (r"/v1/probe/listen", ProbeListenHandler),
        (r"/v1/probe/send", ProbeSendHandler),
    ]
    return Application(
        [URLSpec(path, handler, own) for path, handler in routes],
        default_handler_class=NotFound,
        default_handler_args=own,
    )
