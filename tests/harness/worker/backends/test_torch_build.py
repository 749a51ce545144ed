"""torch's switches of its arithmetic."""

import subprocess
import sys


def test_old_and_new_switches_of_tf32_agree_whatever_was_set_before():
    code = """
import torch
from dlbench.harness.worker.backends.torch_build import math_flags, set_math
backends = torch.backends
for dtype in ("fp32", "tf32", "bf16", "tf32", "fp32"):
    set_math(dtype)
    flags = math_flags()
    old = backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32, torch.get_float32_matmul_precision() == "high"
    print(dtype, flags["fp32_matmul"], flags["fp32_conv"], *old)
"""
    # In a process of its own, because the switches are of the whole process.
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    ieee, tf32 = "ieee ieee False False False", "tf32 tf32 True True True"
    assert done.stdout.splitlines() == [f"fp32 {ieee}", f"tf32 {tf32}", f"bf16 {ieee}", f"tf32 {tf32}", f"fp32 {ieee}"], done.stderr
    assert done.stderr == ""
