# SPDX-License-Identifier: MIT
"""libspmt: ranks that are threads of one process, with a device each.

    import numpy as np, spmt

    def main(comm):
        total = np.empty(4, np.float32)
        comm.all_reduce(total, np.full(4, comm.rank, np.float32))
        return total

    spmt.run(8, main)

``spmt.jax`` has the same collectives for JAX programs. A call that fails raises ``spmt.Error``.
"""

from ._arrays import Symmetric
from ._comm import Comm, init, run, uid_create
from . import _lib
from ._lib import (
    ERR_ABORTED,
    ERR_BROKEN,
    ERR_FORKED,
    ERR_MISMATCH,
    ERR_PEER_DEAD,
    ERR_TIMEOUT,
    ERR_UNSUPPORTED,
    Error,
    Uid,
)
from ._plan import Chunk, OpenPlan, Plan

library: str = _lib.path  # which libspmt.so it is
__version__: str = _lib.lib.spmt_version().decode()
__all__ = [
    "Chunk", "Comm", "Error", "OpenPlan", "Plan", "Symmetric", "Uid", "init", "library", "run", "uid_create",
    "ERR_ABORTED", "ERR_BROKEN", "ERR_FORKED", "ERR_MISMATCH", "ERR_PEER_DEAD", "ERR_TIMEOUT", "ERR_UNSUPPORTED",
]
