"""Helpers of the tests live beside them: ``import front_door``."""

import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

# How long an example takes says something of the machine, which may be busy, and nothing of the code.
settings.register_profile("dlbench", deadline=None)
settings.load_profile("dlbench")
