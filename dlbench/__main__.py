"""``python -m dlbench``: the same as the installed command, from a bare checkout too."""

from dlbench.cli.main import main

main()
