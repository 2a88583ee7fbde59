"""Measure which files the main paths execute: `make paths` writes docs/design/paths.md.

profile_hook.py  records the functions that each process of a system calls
system.py        a development system of a checkout, started with that hook
scenarios.py     triggers each path several times and notes when it started and ended
trace.py         the files that every repetition of a path executed, in their order
page.py          the page
"""
