"""Draw the README's picture of a recipe: the graph of one that was run, as its report draws it.

python -m benchmarks.recipe_picture letters      # after `make train-recipe`
"""

import argparse
import re
from pathlib import Path

from benchmarks.output import console
from mortal_steps.errors import StoreError
from mortal_steps.recipes.record import find_recipe
from mortal_steps.recipes.report.picture import STYLE, picture
from mortal_steps.recipes.report.view import look_at_stages

COLORS = """
:root { --line: #d0d7de; --bar: #08519c; }
@media (prefers-color-scheme: dark) { :root { --line: #3d444d; --bar: #79b8ff; } }
"""
"""Those of a run's page that the graph has, too."""
PICTURE = Path(__file__).parents[1] / "docs/pictures/recipe.svg"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recipe_picture")
    parser.add_argument("name", nargs="?", default="letters", help="of the recipe")
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"))
    args = parser.parse_args()
    folder = find_recipe(args.runs_dir, args.name)
    record = folder.read()
    if record is None:
        raise StoreError(f"recipe {args.name} has no record")
    drawn = picture(look_at_stages(record, folder.runs_dir))
    drawn = re.sub(r"<a [^>]*>|</a>", "", drawn)  # reports that are not beside it
    style = f"<style>{COLORS}{STYLE}.graph {{ margin: 0; }}</style>"
    PICTURE.write_text(drawn.replace(">", f">{style}", 1) + "\n", encoding="utf-8")
    console.print(f"written to {PICTURE}")


if __name__ == "__main__":
    main()
