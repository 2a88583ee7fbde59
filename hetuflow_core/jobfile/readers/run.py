from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hetuflow_core.fields import shape_of
from hetuflow_core.fields.value_reader import ValueReader
from hetuflow_core.jobfile.run import HttpCall, PythonCall, Run
from hetuflow_core.templates.forms import TEMPLATE_VALUE

RUN_KEYS = tuple(shape_of(Run).keys)
HTTP_KEYS = tuple(shape_of(HttpCall).keys)
PYTHON_KEYS = tuple(shape_of(PythonCall).keys)


def read_run(given: ValueReader, _unsupported: Mapping[str, str]) -> Run | None:
    return shape_of(Run).read(given)


def read_json_template(given: ValueReader) -> Any:
    return TEMPLATE_VALUE.read(given)
