"""A hook of MkDocs: puts into the site what docs/ does not hold.

The pages of schema/, the project's own pages and generated reference pages are added; so are the
files of the repository to which a page links. Links are written so that they work in the
repository, and are rewritten here for the site.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable
from pathlib import Path

import docs_reference
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent

# A file of the repository, and where it is in the site.
PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "bench/README.md": "project/benchmarks.md",
    **{f"schema/{page.name}": f"schema/{page.name}" for page in (ROOT / "schema").glob("*.md")},
}

# Generated pages. A page that is in docs/ takes the place of one of these.
GENERATED: dict[str, Callable[[], str]] = {
    "reference/commands.md": docs_reference.commands,
    "reference/analysis-steps.md": docs_reference.analysis_steps,
}

# Text files that are shown as pages, so that a browser does not download them.
SHOWN = {
    ".c": "c",
    ".csv": "text",
    ".h": "c",
    ".py": "python",
    ".rs": "rust",
    ".sh": "sh",
    ".txt": "text",
    ".yaml": "yaml",
}

LINK = re.compile(r"(\]\()([^)#\s]+)(#[^)\s]*)?(\))")
FENCE = re.compile(r"^```(\w+) \w+$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages and files that are not in docs/."""
    texts = {f"docs/{each.src_uri}": each.content_string for each in files.documentation_pages()}
    for source, target in PAGES.items():
        texts[source] = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, target, content=texts[source]))
    for target, generate in GENERATED.items():
        if files.get_file_from_path(target) is None:
            files.append(File.generated(config, target, content=generate()))
    for notebook in [each for each in files if each.src_uri.endswith(".ipynb")]:
        page = notebook.src_uri.removesuffix(".ipynb") + ".md"
        texts[f"docs/{notebook.src_uri}"] = text = _notebook(notebook.content_string)
        files.append(File.generated(config, page, content=text))
        files.remove(notebook)
    for source, text in texts.items():
        for match in LINK.finditer(text):
            linked = _source(source, match[2])
            target = _target(linked)
            if target is None or files.get_file_from_path(target):
                continue
            content = (ROOT / linked).read_bytes()
            if language := SHOWN.get(Path(linked).suffix):
                code = content.decode()
                content = f"# {linked}\n\n````{language}\n{code}````\n".encode()
            files.append(File.generated(config, target, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrites the links of a page for the site."""
    here = page.file.src_uri
    if here == "index.md":
        page.meta["hide"] = ["navigation"]
    source = next((key for key, value in PAGES.items() if value == here), f"docs/{here}")

    def rewritten(match: re.Match[str]) -> str:
        target = _target(_source(source, match[2]))
        if target is None:
            return match[0]
        relative = posixpath.relpath(target, posixpath.dirname(here) or ".")
        return f"{match[1]}{relative}{match[3] or ''}{match[4]}"

    return FENCE.sub(r"```\1", LINK.sub(rewritten, markdown))


def _source(page: str, link: str) -> str:
    """The path in the repository that a link on a page leads to."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))


def _target(source: str) -> str | None:
    """Where a file of the repository is in the site; None if it is no file."""
    if source in PAGES:
        return PAGES[source]
    if not (ROOT / source).is_file():
        return None
    suffix = Path(source).suffix
    if suffix == ".ipynb":
        return source.removeprefix("docs/").removesuffix(suffix) + ".md"
    if suffix in SHOWN:
        return f"files/{source}.md"
    return source.removeprefix("docs/") if source.startswith("docs/") else f"files/{source}"


def _notebook(text: str) -> str:
    """A notebook as Markdown: its texts, and its code without output."""
    parts = []
    for cell in json.loads(text)["cells"]:
        content = "".join(cell["source"])
        parts.append(content if cell["cell_type"] == "markdown" else f"```python\n{content}\n```")
    return "\n\n".join(parts) + "\n"
