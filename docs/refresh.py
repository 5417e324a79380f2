"""Print the stored runs into pages again: `uv run python docs/refresh.py PAGE…`.

Blocks of a page begin with `<!-- onpro report ARGUMENTS -->` and end with `<!-- end -->`. What is
between them is replaced by what the command prints now.
"""

import io
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path

from onpro.cli import main

BLOCK = re.compile(r"(<!-- onpro report (.*?) -->\n)(.*?)(<!-- end -->)", flags=re.DOTALL)


def printed(arguments: str) -> str:
    """Return what `onpro report` prints."""
    with redirect_stdout(io.StringIO()) as output:
        if main(["report", *arguments.split()]):
            sys.exit(f"onpro report {arguments} failed")
    return output.getvalue().strip()


for name in sys.argv[1:]:
    page = Path(name)
    text = BLOCK.sub(
        lambda block: f"{block[1]}\n{printed(block[2])}\n\n{block[4]}",
        page.read_text(encoding="utf-8"),
    )
    page.write_text(text, encoding="utf-8")
