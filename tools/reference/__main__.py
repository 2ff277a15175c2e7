"""``python -m tools.reference`` writes the generated blocks of the documentation, and prints the changed pages."""

from tools.reference.pages import DOCS, pages

for page, was, now in pages():
    if was != now:
        page.write_text(now, encoding="utf-8")
        print(page.relative_to(DOCS.parent))
