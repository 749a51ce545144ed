"""``python -m dlbench``: the same as the installed command, from a bare checkout too."""

import sys

try:
    from dlbench.cli.main import main
except ModuleNotFoundError as error:
    sys.stderr.write(f"dlbench: the package '{error.name}' is not installed here; pip install . adds what is missing\n")
    sys.exit(2)

main()
