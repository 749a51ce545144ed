"""Open pages in Chromium, and hold them to what they promise: no message, no request, no sideways scrolling, WCAG 2.1 AA by axe-core.

Needs Node.js, Chromium, and the packages playwright-core and axe-core where NODE_PATH points.
"""

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_SCRIPT = Path(__file__).with_suffix(".cjs")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print what was found on each page, and exit with 1 if that was anything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument(
        "--browser", default=shutil.which("chromium") or shutil.which("google-chrome"), help="(default: the one on the path)"
    )
    parser.add_argument("--pictures", type=Path, help="folder for a picture of each page, width and scheme")
    options = parser.parse_args(arguments)
    node = shutil.which("node")
    if not node or not options.browser:
        sys.exit("page_check needs node and Chromium; install them, or name the browser with --browser")
    if options.pictures:
        options.pictures.mkdir(parents=True, exist_ok=True)
    settings = {
        "browser": options.browser,
        "pictures": str(options.pictures or ""),
        "pages": [page.resolve().as_uri() for page in options.pages],
    }
    done = subprocess.run([node, str(_SCRIPT), json.dumps(settings)], check=False)
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
