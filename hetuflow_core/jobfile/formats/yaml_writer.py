"""Documents as YAML that reads back as it was: what `-o yaml` prints can be applied again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import yaml

from hetuflow_core.jobfile.formats.yaml_nodes import FLOAT, PREFIXED

# PyYAML writes these bare where it may, and every reader takes some of them for line ends.
_ODD_LINE_ENDS: Final = re.compile("[\x85\u2028\u2029\ufeff]")


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 (an override: nothing is worth an alias)
        return True


def _write_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if _ODD_LINE_ENDS.search(text) else "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _write_text)
for _pattern in (PREFIXED, FLOAT):
    # Texts that YAML 1.2 takes for numbers and PyYAML, which knows 1.1 only, would leave without quotes.
    _Dumper.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(f"(?:{_pattern.pattern})$"), list("-+.0123456789")
    )


def write_yaml(documents: Iterable[Mapping[str, Any]]) -> str:
    """One file with all documents, their keys in the order they have."""
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
