"""The submit panel without its widgets: choices, checks, what is remembered, the text form."""

from jupyter_mntrain.verbs.panel.checks.check import Check, Fix
from jupyter_mntrain.verbs.panel.choices import Choices, NodeChoice
from jupyter_mntrain.verbs.panel.form import Form
from jupyter_mntrain.verbs.panel.node_row import FormRow
from jupyter_mntrain.verbs.panel.open_panel import OpenPanelVerb
from jupyter_mntrain.verbs.panel.panel import Panel
from jupyter_mntrain.verbs.panel.targets import Target

__all__ = [
    "Check",
    "Choices",
    "Fix",
    "Form",
    "FormRow",
    "NodeChoice",
    "OpenPanelVerb",
    "Panel",
    "Target",
]
