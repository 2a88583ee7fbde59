"""Requests and responses of the REST API, shared by the server and the client.

A field has the same name in the job file, here and in the database. Times are RFC 3339 with an offset.
"""

from functools import partial
from typing import TYPE_CHECKING

from hetuflow_core.moved_modules import moved_name

if not TYPE_CHECKING:  # a type checker would accept every name
    __getattr__ = partial(moved_name, __name__)
