"""Helpers of the tests live beside them: ``import front_door``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
