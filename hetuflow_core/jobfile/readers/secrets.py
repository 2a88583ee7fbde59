from __future__ import annotations

from collections.abc import Mapping

from hetuflow_core.fields import shape_of
from hetuflow_core.fields.value_reader import ValueReader, each
from hetuflow_core.jobfile.readers.names import read_name
from hetuflow_core.jobfile.secrets import SecretUse

read_secret_use = shape_of(SecretUse).read


def is_secret_use(given: ValueReader) -> bool:
    return isinstance(given.node.value, Mapping)


def read_secret_names(given: ValueReader) -> tuple[str, ...]:
    return tuple(sorted(set(each(given, read_name))))
