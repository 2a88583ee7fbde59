"""A server with a library in which a name has changed: `python server_with_renamed_part.py PACKAGE NAME …`.

The name is replaced in every source file of the package, as if a new version of the library had renamed it.
The library works, and code that relies on the old name does not find it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType


class _Renaming(SourceFileLoader):
    def __init__(self, fullname: str, path: str, name: str) -> None:
        super().__init__(fullname, path)
        # The name stays in the module that is compiled from C.
        self._name = re.compile(rf"(?<!_psycopg\.)\b{name}\b")

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        source = self.get_data(path).decode()
        return compile(self._name.sub(r"renamed_\g<0>", source), path, "exec", dont_inherit=True)


class _Finder:
    def __init__(self, package: str, name: str) -> None:
        self._package = package
        self._name = name

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] != self._package:
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Renaming(fullname, spec.loader.path, self._name)
        return spec


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
    package, name, *sys.argv[1:] = sys.argv[1:]
    sys.meta_path.insert(0, _Finder(package, name))
    from hetuflow_server.cli.main import main

    main()
