"""The benchmarks are scripts of the checkout, not of the installed package."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent))
