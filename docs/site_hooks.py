"""Hooks of MkDocs: pages that are generated, links that leave `docs/`, equations.

The pages in `docs/` are written for GitHub. For the site, the notebook becomes a page, the
reference of the command is taken from the command itself, links to other files of the repository
lead to copies of them, and equations become MathML, so that nothing is loaded from elsewhere.
"""

import html
import io
import json
import os
import posixpath
import re
import unicodedata
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import ziamath
from fontTools import subset
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
IN_NAVIGATION = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
COPIES = "repository"
"""Folder of the site with copies of files outside `docs/`."""

FONT = "STIXTwoMath-Regular.ttf"
CHARACTERS: set[str] = set()
"""What the equations consist of."""
ITALICS = {0x210E, *range(0x1D434, 0x1D468), *range(0x1D6E2, 0x1D71C)}
"""Letters that browsers show in place of single Latin and Greek ones."""

FUNCTION = re.compile(
    r"(</(?:mi|mn|msub|msup|msubsup|mfrac)>|&#x00029;</mo>)?(<msub>|<munder>)?"
    r"<m[io]>([a-z\u00a0]{3,})</m[io]>(?=((?:<mrow>)?<mo[^>]*>&#x0002[89];)?)"
)
"""Name of a function, with what stands around it: an operand before, a parenthesis after."""
INLINE_CODE = re.compile(r"(?<!<span></span>)(?<!<pre>)<code>([^<\n]+)</code>")
METHOD_THIRD = re.compile(
    r"<table>(?=\s*<thead>\s*<tr>\s*<th>data</th>\s*<th>memory</th>\s*<th>method</th>)"
)
"""Table whose rows are told apart by their third column; it stays in view on a phone."""
LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)#\s]+)")
CODE = re.compile(r"(^```.*?^```|^    [^\n]*|`[^`\n]+`)", flags=re.DOTALL | re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages and the files that pages link to."""
    files.append(File.generated(config, "reference/command.md", content=command_reference()))
    for notebook in DOCS.glob("*.ipynb"):
        page = notebook.with_suffix(".md").name
        files.append(File.generated(config, page, content=notebook_page(notebook)))
    waiting = [*DOCS.rglob("*.md"), *(ROOT / name for name in IN_NAVIGATION)]
    seen = set(waiting)
    while waiting:
        path = waiting.pop()
        if not path.is_relative_to(DOCS):
            _copy(path, files, config)
        if path.suffix == ".md":
            linked = {target for _, target in _links(path.read_text(), path)}
            waiting += [target for target in linked - seen if not target.is_relative_to(DOCS)]
            seen |= linked
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Let links lead to pages and copies on the site."""
    source = _source_of(page.file.src_uri)
    for target, path in _links(markdown, source):
        uri = posixpath.relpath(site_uri(path), posixpath.dirname(page.file.src_uri) or ".")
        markdown = re.sub(rf"(?<=\]\(){re.escape(target)}(?=[)#])", uri, markdown)
    return markdown


def on_page_content(content: str, **_: Any) -> str:
    """Replace equations by MathML, and keep together what no line should break."""
    content = re.sub(r"(?<=\d) ± (?=\d)", "\u00a0±\u00a0", content)
    content = re.sub(r"(?<=\d) (?=%|(?:ms|GiB)\b)", "\u00a0", content)
    content = INLINE_CODE.sub(_unbroken_options, content)
    content = METHOD_THIRD.sub('<table data-names="third">', content)
    content = re.sub(
        r'<span class="arithmatex">\\\((.*?)\\\)</span>([.,:;)]*)',
        lambda found: _unbroken(mathml(html.unescape(found[1]), "inline") + found[2]),
        content,
        flags=re.DOTALL,
    )
    return re.sub(
        r'<div class="arithmatex">\\\[(.*?)\\\]</div>',
        lambda found: f'<div class="equation">{mathml(html.unescape(found[1]), "block")}</div>',
        content,
        flags=re.DOTALL,
    )


def _unbroken(content: str) -> str:
    return f'<span class="unbroken">{content}</span>'


def _unbroken_options(code: re.Match[str]) -> str:
    """Return inline code whose words are not broken at hyphens, unless they are long."""
    words = re.sub(r"(?<!\S)(?=\S*-)\S{2,28}(?!\S)", lambda word: _unbroken(word[0]), code[1])
    return f"<code>{words}</code>"


def mathml(latex: str, display: str) -> str:
    """Return an equation as MathML; raise ValueError for LaTeX that is not understood."""
    simpler = latex.replace(r"\arg\min", r"\operatorname{arg min}")
    simpler = re.sub(r"\\[Bb]igg?(\\[lr]Vert)", r"\1", simpler)  # these sizes are not known there
    made = convert(simpler.strip(), display=display)
    if "\\" in made:
        raise ValueError(f"this equation cannot be shown: {latex}")
    # Browsers know no variants but the normal one: letters of their own take their place.
    made = re.sub(r'<mi mathvariant="(script|double-struck)">([A-Z])</mi>', _letter, made)
    made = _spaced(made)
    CHARACTERS.update(html.unescape(made))
    return made


def _spaced(made: str) -> str:
    """Return MathML with space around names of functions as in LaTeX, and none around bars."""
    bar = r'<mo lspace="0" rspace="0" stretchy="false">\1</mo>'
    made = re.sub(r"<mo[^>]*>(&#x0007C;|&#x02016;)</mo>", bar, made)
    made = made.replace("&#x000AF;", "&#x0203E;").replace(">argmin<", ">arg\u00a0min<")
    return FUNCTION.sub(_function, made)


def _function(found: re.Match[str]) -> str:
    before, opening, name, parenthesis = found.groups(default="")
    left, right = "0.17em" if before else "0", "0" if parenthesis else "0.17em"
    return f'{before}{opening}<mo lspace="{left}" rspace="{right}">{name}</mo>'


def _letter(found: re.Match[str]) -> str:
    name = f"{found[1].upper()} CAPITAL {found[2]}"
    try:
        return f"<mi>{unicodedata.lookup(f'MATHEMATICAL {name}')}</mi>"
    except KeyError:  # L, R and others are older
        return f"<mi>{unicodedata.lookup(name)}</mi>"


def on_post_build(config: MkDocsConfig) -> None:
    """Write the part of STIX Two Math that the equations need; few machines have a math font."""
    options = subset.Options()
    options.flavor = "woff"
    options.layout_features = ["*"]
    font = subset.load_font(str(Path(ziamath.__file__).with_name("fonts") / FONT), options)
    subsetter = subset.Subsetter(options)
    subsetter.populate(unicodes={*map(ord, CHARACTERS), *ITALICS})
    subsetter.subset(font)
    subset.save_font(font, str(Path(config.site_dir) / "math.woff"), options)


def command_reference() -> str:
    """Return the page on the command: the help texts of all subcommands."""
    from onpro.cli import COMMANDS

    parts = [
        "# The command `onpro`",
        "These are the help texts of the installed version. `onpro COMMAND --help` prints them; "
        "`onpro run METHOD --help` has the settings of that method, here OnPro, and "
        "`onpro run METHOD --data NAME --help` the values that a data set gives them.",
        _help([]),
    ]
    for name in COMMANDS:
        parts += [f"## onpro {name}", _help([name])]
    return "\n\n".join(parts)


def _help(arguments: list[str]) -> str:
    from onpro.cli import main

    os.environ["COLUMNS"], os.environ["NO_COLOR"] = "80", "1"
    with redirect_stdout(io.StringIO()) as printed:
        main([*arguments, "--help"])
    text = re.sub(r"\x1b\[[0-9;]*m", "", printed.getvalue()).strip("\n")
    return f"```text\n{text}\n```"


def notebook_page(path: Path) -> str:
    """Return a notebook with its outputs as Markdown."""
    parts = []
    for cell in json.loads(path.read_text())["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        alt = html.escape(cell["metadata"].get("alt", ""))
        parts += [_shown(output, alt) for output in cell.get("outputs", [])]
    parts.append(f"[Download this page as a notebook]({path.name}){{ download }}")
    return "\n\n".join(parts)


def _shown(output: dict[str, Any], alt: str) -> str:
    """Return an output of a notebook as Markdown."""
    found = output.get("data", {})
    if "image/png" in found:
        image = "".join(found["image/png"]).replace("\n", "")
        return f'<img alt="{alt}" class="output" src="data:image/png;base64,{image}">'
    if "text/html" in found:
        return f'<div class="output">{"".join(found["text/html"])}</div>'
    text = "".join(output.get("text", found.get("text/plain", "")))
    return f"```text\n{text.rstrip()}\n```"


def site_uri(path: Path) -> str:
    """Return where a file of the repository is among the sources of the site."""
    if path.is_relative_to(DOCS):
        page = path.with_suffix(".md") if path.suffix == ".ipynb" else path
        return page.relative_to(DOCS).as_posix()
    name = path.relative_to(ROOT).as_posix()
    if name in IN_NAVIGATION:
        return IN_NAVIGATION[name]
    page = path.is_dir() or path.suffix in {".py", ".toml"}
    return f"{COPIES}/{name}{'.md' if page else ''}"


def _source_of(uri: str) -> Path:
    """Return the file of the repository that a page comes from."""
    for name, here in IN_NAVIGATION.items():
        if uri == here:
            return ROOT / name
    return ROOT / uri.removeprefix(f"{COPIES}/") if uri.startswith(COPIES) else DOCS / uri


def _links(markdown: str, source: Path) -> list[tuple[str, Path]]:
    """Return the links of a page to files of the repository, as they are written and as paths."""
    prose = CODE.sub(" ", markdown)
    targets = {target: (source.parent / target).resolve() for target in LINK.findall(prose)}
    return [(target, path) for target, path in targets.items() if path.exists()]


def _copy(path: Path, files: Files, config: MkDocsConfig) -> None:
    uri = site_uri(path)
    if path.suffix == ".md":
        made = File.generated(config, uri, content=path.read_text())
    elif uri.endswith(".md"):
        made = File.generated(config, uri, content=_listing(path))
    else:
        made = File.generated(config, uri, abs_src_path=str(path))
    if uri not in IN_NAVIGATION.values():
        made.inclusion = InclusionLevel.NOT_IN_NAV
    files.append(made)


def _listing(path: Path) -> str:
    """Return a page with the text of a file, or with the names in a folder."""
    if path.is_dir():
        names = sorted(each.name for each in path.iterdir() if not each.name.startswith("_"))
        text = "\n".join(f"- `{name}`" for name in names)
    else:
        language = {".py": "python"}.get(path.suffix, path.suffix.removeprefix("."))
        text = f"````{language}\n{path.read_text()}````"
    name = path.relative_to(ROOT).as_posix()
    return f"---\nsearch:\n  exclude: true\n---\n\n# `{name}`\n\n{text}\n"
