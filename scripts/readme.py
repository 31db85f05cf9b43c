"""Fill the tables between `<!-- results: NAME -->` and `<!-- end -->` from results/NAME.json.

python scripts/readme.py            write README.md
python scripts/readme.py --check    exit with 1 if README.md is not what the results say
"""

import json
import re
import sys
from pathlib import Path

from darkbayes.report import markdown

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"<!-- results: ([\w-]+) -->\n.*?<!-- end -->", re.DOTALL)


def fill(text: str) -> str:
    """The text with every block written anew."""

    def block(match: re.Match[str]) -> str:
        results = json.loads((ROOT / "results" / f"{match[1]}.json").read_text(encoding="utf-8"))
        return f"<!-- results: {match[1]} -->\n{markdown(results)}\n<!-- end -->"

    return BLOCK.sub(block, text)


def main() -> None:
    """Write or check the README."""
    path = ROOT / "README.md"
    text = path.read_text(encoding="utf-8")
    if "--check" in sys.argv[1:]:
        sys.exit(fill(text) != text)
    path.write_text(fill(text), encoding="utf-8")


if __name__ == "__main__":
    main()
