"""What MkDocs asks for: pages outside ``docs/``, links as they are in the checkout, a table of the options."""

import ast
import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
OUTSIDE = ("*.md", "LICENSE", "CITATION.cff", "examples/**/*.*", "benchmarks/*.*", "fairseq_attnvariants/*.py")
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)[^)#\s]+")
ROLE = re.compile(r":(?:class|func|mod|attr|data|meth):<code>~?\.*([^<]*)</code>")


def on_files(files, config):
    """Add the README and what else is in the checkout and not in ``docs/``."""
    for pattern in OUTSIDE:
        for path in ROOT.glob(pattern):
            name = path.relative_to(ROOT).as_posix()
            target = "index.html" if name == "README.md" else None
            files.append(File(name, str(ROOT), config.site_dir, config.use_directory_urls, dest_uri=target))
    return files


def on_page_markdown(markdown, page, config, files):
    """Links are relative to a page's place in the checkout; on the site, ``docs/`` is the root."""
    source = Path(page.file.abs_src_path).relative_to(ROOT)
    here = posixpath.dirname(page.file.src_uri)

    def moved(match):
        path = posixpath.normpath(posixpath.join(source.parent.as_posix(), match[0]))
        return posixpath.relpath(path.removeprefix("docs/"), here or ".")

    return LINK.sub(moved, markdown).replace("<!-- options -->", options_table())


def options_table():
    """The help of every option: ``name: type = option(help, default)`` in the package's source."""
    rows = ["| option | |", "|---|---|"]
    trees = [ast.parse(path.read_text()) for path in (ROOT / "fairseq_attnvariants").glob("*.py")]
    for node in (node for tree in trees for node in ast.walk(tree)):
        value = node.value if isinstance(node, ast.AnnAssign) else None
        if isinstance(value, ast.Call) and getattr(value.func, "id", "") == "option":
            text, *default = (argument.value for argument in value.args)
            text = text.replace("|", "\\|") + (f" (default: {default[0]})" if default else "")
            rows.append(f"| `--{node.target.id.replace('_', '-')}` | {text} |")
    return "\n".join(rows)


def on_page_content(html, **_):
    """Docstrings name things with Sphinx's roles."""
    return ROLE.sub(lambda match: f"<code>{match[1]}</code>", html)
