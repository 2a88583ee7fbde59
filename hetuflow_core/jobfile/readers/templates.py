from __future__ import annotations

from hetuflow_core.templates.forms import TEMPLATE

read_template = TEMPLATE.read
