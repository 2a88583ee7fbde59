"""Settings as text, made from the declarations: the template, `config show`, the reference page."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hetuflow_core.runtime.config.keys import KeyKind, KeySpec, SectionSpec, Settings, sections_of
from hetuflow_core.runtime.config.loading import Loaded, without_secrets
from hetuflow_core.runtime.config.values import limits, plain, toml_literal

_WIDTH = 100

_TEMPLATE_INTRODUCTION = """\
Configuration of Hetuflow. Every key is listed with its default or an example: remove the # in front of
it to set it. The environment is stronger than this file: HETUFLOW_SECTION__KEY sets a key,
HETUFLOW_SECTION__KEY_FILE names a file that holds its value. `config check` lists everything that is
wrong with the result."""

_REFERENCE_INTRODUCTION = """\
# Configuration

<!-- Made by docs/generate.py from the declarations in settings.py: edit those and run it again. -->

Settings come from these places; a later one is stronger than an earlier one:

1. the defaults below;
2. one TOML file: the one given with `--config`, else the one `HETUFLOW_CONFIG` names, else `app.toml` in the
   working directory, else `/etc/hetuflow/app.toml`;
3. environment variables named `HETUFLOW_SECTION__KEY`, with two underscores between section and key;
4. environment variables named `HETUFLOW_SECTION__KEY_FILE`: the value is the content of the file they name,
   without the newline at its end. Setting a key both ways is refused.

Servers and agents may share one file; each reads its own sections. Unknown sections and keys are refused, and
`hetuflow config check` and `hetuflow-agent config check` list everything that is wrong at once. `config show`
prints the values in effect and where each comes from, `config write` writes a file with every key.

| type | in the file | in the environment |
|---|---|---|
| text | `"text"` | `text` |
| whole number | `10` | `10` |
| true or false | `true` | `true`, `1`, `yes`, `on`; `false`, `0`, `no`, `off` |
| duration | `"500ms"`, `"30s"`, `"10m"`, `"2h"`, `"1d"`, `"1h30m"` | `1h30m` |
| path | `"/var/lib/x"`, `"~/x"` | `/var/lib/x` |
| list of texts | `["a", "b"]` | `a,b` or `["a", "b"]` |
| map of texts | `{ a = "1", b = "2" }` | `a=1,b=2` or `{"a": "1", "b": "2"}` |

A key that may be left unset is also unset by an empty text. Secrets are never printed."""


def template(settings_types: Sequence[type[Settings]]) -> str:
    """An `app.toml` with every key of these programs, commented out."""
    blocks = ["\n".join(f"# {line}" for line in _TEMPLATE_INTRODUCTION.splitlines())]
    for section, _ in _merged((settings_type, "") for settings_type in settings_types):
        blocks.append(f"{_comment(section.doc)}\n[{section.name}]")
        blocks.extend(_template_key(spec) for spec in section.keys)
    return "\n\n".join(blocks) + "\n"


def _template_key(spec: KeySpec) -> str:
    value = plain(spec.key.example if spec.key.example is not None else spec.default)
    about = [spec.key.doc, *(_sentence(fact) for fact in (_accepts(spec), _default_in_words(spec)) if fact)]
    return f"{_comment(' '.join(about))}\n#{spec.name} = {toml_literal(value)}"


def _default_in_words(spec: KeySpec) -> str:
    """The default where the template's line cannot show it."""
    if spec.required:
        return "required"
    if spec.key.derived is not None:
        return f"default: {spec.key.derived.text}"
    if spec.default is None:
        return "default: not set"
    return f"default: {toml_literal(plain(spec.default))}" if spec.key.example is not None else ""


def _accepts(spec: KeySpec) -> str:
    if spec.choices:
        return f"one of {', '.join(spec.choices)}"
    if spec.key.min_length:
        return f"at least {spec.key.min_length} characters"
    return limits(spec)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _comment(text: str) -> str:
    return "\n".join(f"# {line}" for line in textwrap.wrap(text, _WIDTH, break_on_hyphens=False))


def effective_toml(loaded: Loaded[Any]) -> str:
    """The values in effect, their origins as comments; TOML that loads again, but for the masked secrets."""
    lines = [f"# from {loaded.file or 'defaults and environment, there is no file'}"]
    for section, values in without_secrets(loaded.settings).items():
        lines += ["", f"[{section}]"]
        for name, value in values.items():
            origin = loaded.origins[f"{section}.{name}"]
            lines.append(
                f"#{name} is not set" if value is None else f"{name} = {toml_literal(value)}  # {origin}"
            )
    return "\n".join(lines) + "\n"


def effective_json(loaded: Loaded[Any]) -> str:
    settings = {
        section: {
            name: {"value": value, "origin": loaded.origins[f"{section}.{name}"]}
            for name, value in values.items()
        }
        for section, values in without_secrets(loaded.settings).items()
    }
    file = str(loaded.file) if loaded.file else None
    return json.dumps({"file": file, "settings": settings}, indent=2, ensure_ascii=False) + "\n"


def validity(loaded: Loaded[Any]) -> str:
    """What `config check` says about a configuration without faults."""
    lines = [f"configuration is valid ({loaded.file or 'no file, defaults and environment only'})"]
    foreign = type(loaded.settings).foreign_sections
    lines += [f"the [{name}] section is checked by `{foreign[name]} config check`" for name in loaded.skipped]
    return "\n".join(lines) + "\n"


def reference(programs: Mapping[str, type[Settings]]) -> str:
    """The reference page, in Markdown; `programs` maps a program's name to what it reads."""
    blocks = [_REFERENCE_INTRODUCTION]
    for section, readers in _merged((settings_type, name) for name, settings_type in programs.items()):
        read_by = " and ".join(f"`{reader}`" for reader in readers)
        rows = ["| key | type | default | meaning |", "|---|---|---|---|", *map(_reference_row, section.keys)]
        blocks.append(f"## `[{section.name}]`\n\n{section.doc} Read by {read_by}.\n\n" + "\n".join(rows))
    return "\n\n".join(blocks) + "\n"


def _reference_row(spec: KeySpec) -> str:
    if spec.required:
        default = "required"
    elif spec.key.derived is not None:
        default = spec.key.derived.text
    else:
        default = "not set" if spec.default is None else f"`{toml_literal(plain(spec.default))}`"
    kind = "text" if spec.kind is KeyKind.CHOICE else spec.kind.value
    accepts = f", {_accepts(spec)}" if _accepts(spec) else ""
    cells = (f"`{spec.name}`<br>`{spec.env}`", f"{kind}{accepts}", default, spec.key.doc)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _merged(readers: Iterable[tuple[type[Settings], str]]) -> list[tuple[SectionSpec, list[str]]]:
    """Every section once, in order, with all its readers."""
    merged: dict[str, tuple[SectionSpec, list[str]]] = {}
    for settings_type, reader in readers:
        for section in sections_of(settings_type):
            merged.setdefault(section.name, (section, []))[1].append(reader)
    return list(merged.values())
