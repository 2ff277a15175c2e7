"""``python -m tools.reference`` writes what the documentation takes from the code, and says which pages changed."""

from tools.reference.pages import DOCS, pages

for page, was, now in pages():
    if was != now:
        page.write_text(now, encoding="utf-8")
        print(page.relative_to(DOCS.parent))
