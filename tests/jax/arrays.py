# SPDX-License-Identifier: MIT
"""Arrays of JAX and symmetric ones of the package, each seen by the other: on GPUs in their memory, a rank each, else on the CPU."""

import gc
import time

import jax
import ml_dtypes
import numpy as np
from common import CPU, N, TIMEOUT, main, raises

import spmt

HEAP = 64 << 20
BACKEND = "host" if CPU else "hip" if "rocm" in getattr(jax.devices()[0].client, "platform_version", "").lower() else "cuda"
TYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int8, np.int32, np.int64, np.uint8, np.uint32]


def run(fn, *args):
    return spmt.run(N, fn, *args, backend=BACKEND, heap_size=HEAP, timeout=TIMEOUT)


def device_of(comm):
    """JAX's, of a rank: on the CPU one for all, as the ranks' devices there are none of JAX's."""
    return jax.devices()[0] if CPU else next(d for d in jax.devices() if d.local_hardware_id == comm.device)


def given(comm, values):
    return jax.device_put(values, device_of(comm))


def arrays_are_read():
    """By every call, in every type, where they are."""

    def rank(comm):
        n, r = comm.nranks, comm.rank
        for dtype in TYPES:
            x = given(comm, (np.arange(6) + r).astype(dtype))
            total, whole, block = comm.malloc(6, dtype), comm.malloc((n, 6), dtype), comm.malloc(6, dtype)
            comm.all_reduce(total, x)
            comm.all_gather(whole, x)
            comm.put(block, x, (r + 1) % n)
            comm.barrier()
            np.testing.assert_array_equal(total.copy_out().astype(float), n * np.arange(6) + sum(range(n)))
            np.testing.assert_array_equal(whole.copy_out().astype(float), np.arange(6) + np.arange(n)[:, None])
            np.testing.assert_array_equal(block.copy_out().astype(float), np.arange(6) + (r - 1) % n)
            comm.barrier()
            for one in (total, whole, block):
                one.free()

    run(rank)


def what_is_computed_late():
    """A call waits for the program that makes its array."""
    size, times = (256, 4) if CPU else (4096, 60)
    late = jax.jit(lambda v: jax.lax.fori_loop(0, times, lambda _, c: c @ v * np.float32(1 / size), v)[0])

    def rank(comm):
        total, ones = comm.malloc(size), given(comm, np.ones((size, size), np.float32))
        late(ones).block_until_ready()
        comm.barrier()
        for _ in range(5):
            y = late(ones)
            comm.all_reduce(total, y)
            np.testing.assert_array_equal(total.copy_out(), comm.nranks)

    run(rank)


def symmetric_arrays_are_seen():
    """By JAX, in place; with what was put there, which a program that is launched behind it reads."""

    def rank(comm):
        n, r = comm.nranks, comm.rank
        block = comm.malloc((2, 3), np.float32)
        for turn in range(3):
            comm.put(block, given(comm, np.arange(6, dtype=np.float32).reshape(2, 3) + r + turn), (r + 1) % n)
            comm.barrier()
            seen = jax.dlpack.from_dlpack(block)
            assert seen.shape == (2, 3) and seen.devices() == {device_of(comm)}
            assert seen.unsafe_buffer_pointer() == block.ptr
            np.testing.assert_array_equal(2 * seen, 2 * (np.arange(6).reshape(2, 3) + (r - 1) % n + turn))
            raises(block.free, "still seen by DLPack")
            del seen
            gc.collect()
            comm.barrier()
        deadline = time.monotonic() + TIMEOUT
        while True:  # a program of JAX's may hold what it has read for a moment
            try:
                block.free()
                return
            except BufferError:
                assert time.monotonic() < deadline
                time.sleep(0.01)

    run(rank)


def cpus():
    try:
        return jax.devices("cpu")
    except RuntimeError:  # JAX_PLATFORMS does not name it
        return []


def what_is_refused():
    def rank(comm):
        x = given(comm, np.arange(6, dtype=np.float32))
        block = comm.malloc(6)
        raises(lambda: comm.all_reduce(x, block), *["writable"] if CPU else ["ArrayImpl is read-only"])
        raises(lambda: comm.get(x, block, comm.rank), *["writable"] if CPU else ["ArrayImpl is read-only"])
        if not CPU and N > 1:
            other = jax.device_put(np.zeros(6, np.float32), next(d for d in jax.devices() if d.local_hardware_id != comm.device))
            raises(lambda: comm.all_reduce(block, other), "rank %d is on" % comm.rank, "pass what is on the rank's own device")
        hosts = [] if CPU else cpus()
        for host in hosts[:1]:
            host = jax.device_put(np.zeros(6, np.float32), host)
            raises(lambda: comm.all_reduce(block, host), "is in memory of the CPU")

    run(rank)


if __name__ == "__main__":
    main([arrays_are_read, what_is_computed_late, symmetric_arrays_are_seen, what_is_refused], 1)
