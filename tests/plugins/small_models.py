"""Makes every model a small one, so that a whole run trains in milliseconds."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent))
from small_classifier import replace_models

from dlbench.workloads.parallel import model_parallel

replace_models()
model_parallel.WIDTH = 64
