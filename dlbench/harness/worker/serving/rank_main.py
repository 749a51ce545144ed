"""The measuring process of one rank, which torchrun starts. It connects to its parent before torch is imported, so it can end early."""

import faulthandler
import gc
import os
import sys
from pathlib import Path

from dlbench.harness.process.wire import call_parent, send
from dlbench.harness.worker import parent


def main() -> None:
    """Serve until the requests end.

    Arguments: the parent's address, the folder for the ranks' output, the number of this machine's first rank, how many ranks there are on
    all machines, and the store by which they find each other (see `RankProcess.of_torchrun`).
    """
    address, folder, first, size, store = sys.argv[1:6]
    # torchrun counts the ranks of this machine alone.
    rank = int(first) + int(os.environ["RANK"])
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)  # older versions of torchrun start a rank in their own process group
    parent.die_with_parent([])
    connection = call_parent(address)
    send(connection.fileno(), {"rank": rank, "pid": os.getpid()})
    # The connection is the lifeline as well. The lifeline's thread reads it, and copies requests to a pipe that `serve` reads.
    requests, requests_in = os.pipe()
    parent.depend_on_lifeline(connection.fileno(), requests_in)
    output = os.open(Path(folder) / str(rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):  # stdout and stderr of each rank go to a file of its own
        os.dup2(output, stream)
    faulthandler.enable()
    gc.disable()  # until all is imported
    from dlbench.harness.worker.serving import main as worker
    from dlbench.harness.worker.serving.ranks import RankProcess

    worker.serve(requests, connection.fileno(), rank_process=RankProcess.of_torchrun(rank, int(size), store))
