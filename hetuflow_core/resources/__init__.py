"""What the REST API answers with, for the server that writes it and the client that reads it.

A field has the same name in the job file, here and in the database. Times are RFC 3339 with an offset.
"""

from functools import partial
from typing import TYPE_CHECKING

from hetuflow_core.moved_modules import moved_name

if not TYPE_CHECKING:  # a type checker would take every name for one that is here
    __getattr__ = partial(moved_name, __name__)
