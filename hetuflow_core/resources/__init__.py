"""What the REST API answers with, for the server that writes it and the client that reads it.

A field has the same name in the job file, here and in the database. Times are RFC 3339 with an offset.
"""
