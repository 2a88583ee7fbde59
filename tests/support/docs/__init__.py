r"""Run the commands and code blocks of a documentation page as they are printed there.

A page opts in by its path in `PAGES` of `tests/e2e/project/test_pages.py`. From then on every block is run,
in the order of the page, in one folder that contains `Makefile`, `examples` and `.venv` as the project's
folder does:

| block | what the test does |
|---|---|
| `console` | types each line after `$ ` into a shell; compares the output with the lines below it |
| any other language with `title="FILE"` | writes the block to that file |
| `python` without a title | runs the block; compares the output with a `text` block that follows |
| `text` | nothing: the block is output or a picture |

A block in another language without a title is an error, so that no block is left out by accident.

- A command continues on the next line after `\`, and a here-document ends at its `EOF`.
- The output is standard output and standard error together. `…` in the expected output matches any text
  within the line; a line that is only `…` matches any number of lines. The widths of the gaps between
  columns do not count.
- Commands that only read (`hetuflow task list`, `flow graph` …) are repeated until the output matches,
  because a reader is slower than the test. All other commands are run once.
- A command must exit with 0, unless the next command is `echo $?`, which then shows the exit code.
- `console` blocks with the same `title="NAME"` share a separate shell, as a reader has several terminals.

A comment directly above a block changes how it is run:

- `<!-- not run: REASON -->` leaves the block out. The reason is required.
- `<!-- keeps running -->` starts the last command of the block and continues when the output that the page
  shows has appeared. The command gets Ctrl-C at the end of the page.

A page that starts the system with `make dev` gets that system. For any other page the test starts one first
and activates `.venv`. The system listens on a free port: the runner replaces `127.0.0.1:8600` in commands
and files by its address, and the address in outputs by `127.0.0.1:8600`.
"""
