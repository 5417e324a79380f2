"""Rewrite what is generated from the stored runs: index.csv, and tables and pictures of the pages.

Run it after `onpro pack` has added runs: uv run python results/update.py
"""

import io
import os
import re
from contextlib import redirect_stdout
from pathlib import Path

from onpro.cli import main

ROOT = Path(__file__).resolve().parents[1]
TABLE = re.compile(r"(<!-- onpro (report .*?) -->\n).*?(<!-- end -->)", flags=re.DOTALL)
PICTURE = re.compile(r"<!-- onpro (figure .*?) -->")


def printed(command: str) -> str:
    """Return what an onpro command prints."""
    out = io.StringIO()
    with redirect_stdout(out):
        if main(command.split()):
            raise SystemExit(f"failed: onpro {command}")
    return out.getvalue()


def updated(page: str) -> str:
    """Return a page with its tables as the program prints them now."""
    return TABLE.sub(lambda found: f"{found[1]}\n{printed(found[2])}\n{found[3]}", page)


if __name__ == "__main__":
    os.chdir(ROOT)
    printed("report results --coverage --out results/index.csv")
    for path in (Path("README.md"), *Path("docs").rglob("*.md"), *Path("results").rglob("*.md")):
        page = path.read_text()
        path.write_text(updated(page))
        for command in PICTURE.findall(page):
            printed(command)
