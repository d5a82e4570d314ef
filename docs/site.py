"""Hooks for MkDocs: pages outside ``docs/``, links as in the checkout, tables of options and of modules."""

import ast
import dataclasses
import posixpath
import re
import shutil
import tempfile
from pathlib import Path

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

from fairseq_attnvariants.architectures.options import AttentionRNNConfig, flag
from fairseq_attnvariants.deploy.page import build_page, find_onnxruntime_web
from fairseq_attnvariants.registry import ConfigurationError

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "fairseq_attnvariants"
OUTSIDE = (
    "*.md",
    "LICENSE",
    "CITATION.cff",
    "examples/**/*.*",
    "benchmarks/*.*",
    "fairseq_attnvariants/*.py",
    "*_run/*.md",
    "models/*.md",
)
LIVE = {"ja-en": "Japanese to English", "en-ja": "English to Japanese"}
"""the models with pages on the site, if onnxruntime-web is installed"""
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)[^)#\s]+")
FLAG = re.compile(r"(?<=`)--[a-z-]+(?=`)")
FLAGS = re.compile(r"^`--[a-z-]+`(?:,\s+`--[a-z-]+`)*$", re.MULTILINE)  # a paragraph that has only flags
ROLE = re.compile(r":(?:class|func|mod|attr|data|meth):<code>~?\.*([^<]*)</code>")


def modules():
    """Yield each module of the package with the first line of its docstring."""
    for path in sorted(PACKAGE.rglob("*.py")):
        line = (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n")[0]
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if line and name != PACKAGE.name:
            yield name, line


def page_of(module):
    """The page of a module, in ``docs/``."""
    return f"api/{module.removeprefix(PACKAGE.name + '.')}.md"


def on_files(files, config):
    """Add a page for each module, and the files of :data:`OUTSIDE`."""
    for name, _ in modules():
        files.append(File.generated(config, page_of(name), content=f"# {name}\n\n::: {name}\n"))
    for pattern in OUTSIDE:
        for path in ROOT.glob(pattern):
            name = path.relative_to(ROOT).as_posix()
            target = "index.html" if name == "README.md" else None
            files.append(File(name, str(ROOT), config.site_dir, config.use_directory_urls, dest_uri=target))
    return files


def live():
    """The models by the names of their pages; empty without onnxruntime-web."""
    try:
        find_onnxruntime_web()
    except ConfigurationError:
        return {}
    return {f"translate-{model}.html": model for model in LIVE}


def on_post_build(config):
    """Make the pages of models."""
    for name, model in live().items():
        with tempfile.TemporaryDirectory() as folder:
            package = shutil.copytree(ROOT / "models" / model, Path(folder) / model)
            shutil.copy(build_page(package), Path(config.site_dir) / name)


def on_page_markdown(markdown, page, config, files):
    """Make links in the checkout fit the site, where ``docs/`` is the root; add tables, and links to the live pages."""
    if page.file.abs_src_path is None:  # the page of a module
        return markdown
    source = Path(page.file.abs_src_path).relative_to(ROOT)
    here = posixpath.dirname(page.file.src_uri)

    def moved(match):
        path = posixpath.normpath(posixpath.join(source.parent.as_posix(), match[0]))
        return posixpath.relpath(path.removeprefix("docs/"), here or ".")

    listed = "\n".join(
        ["| module | |", "|---|---|", *(f"| [`{name}`]({page_of(name)}) | {line} |" for name, line in modules())]
    )
    markdown = LINK.sub(moved, markdown)
    if page.file.src_uri == "options.md":
        markdown = options_tables(markdown)
    if page.file.src_uri in ("web-page.md", "models/README.md"):
        title, rest = markdown.split("\n", 1)
        up = posixpath.relpath(".", page.url or ".")
        links = [f"[{LIVE[model]}]({up}/{name})" for name, model in live().items()]
        markdown = "\n".join([title, *(["", f"Try it here: {', '.join(links)} (9 to 11 MB)."] if links else []), rest])
    return markdown.replace("<!-- modules -->", listed)


def options_tables(markdown):
    """Replace each list of flags on the page of options by a table of their help, with an anchor for each option."""
    rows, described = {}, AttentionRNNConfig()
    for one in dataclasses.fields(AttentionRNNConfig):
        text = described._get_help(one.name)
        if text is None:  # an option of fairseq
            continue
        text = text.replace("|", "\\|") + (f" (default: {one.default})" if one.default not in (None, "") else "")
        own = one.metadata.get("rnnsearch")
        shown = "by other options" if callable(own) else "" if own is None else f"`{own}`"
        name = flag(one.name)
        anchor = name.removeprefix("--")
        rows[name] = f"| [`{name}`](#{anchor}){{#{anchor}}} | {shown} | {text} |"

    def table(match):
        return "\n".join(["| option | `rnnsearch` | |", "|---|---|---|", *map(rows.pop, FLAG.findall(match[0]))])

    markdown = FLAGS.sub(table, markdown)
    if rows:
        raise PluginError(f"docs/options.md has no group for {', '.join(rows)}")
    return markdown


def on_page_content(html, **_):
    """Show Sphinx's roles in docstrings as plain code."""
    return ROLE.sub(lambda match: f"<code>{match[1]}</code>", html)
