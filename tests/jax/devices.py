# SPDX-License-Identifier: MIT
"""Every handler on whatever devices there are, one as well: types, shapes, loops, command buffers, errors, and that no handler waits.
What is expected is made by numpy, so that nothing of JAX's own collectives is needed."""

import gc
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings

GRAPHS = os.environ.get("SPMT_TEST_GRAPHS") == "1"  # a child that puts calls into command buffers
if GRAPHS:
    os.environ["SPMT_TEST_XLA_FLAGS"] = "--xla_gpu_enable_command_buffer=FUSION,CUSTOM_CALL --xla_gpu_graph_min_graph_size=1"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402
from common import CPU, N, P, RING, TIMEOUT, main, mapped, mesh, raises  # noqa: E402
from jax import lax  # noqa: E402

import spmt.jax  # noqa: E402

REALS = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
EIGHTS = [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
TYPES = REALS + EIGHTS + [np.bool_, np.complex64, np.complex128]
SHAPES = [(N,), (2 * N, 3), (N, 0), (129 * N, 5)]


def numbers(shape, dtype):
    """For each device; sums of them are exact in every type."""
    values = np.random.default_rng(7).integers(0, 2, (N, *shape))
    return (values + 1j * values[::-1] if np.dtype(dtype).kind == "c" else values).astype(dtype)


def plain(x):
    x = np.asarray(x)
    return x.astype(np.complex128) if x.dtype.kind in "cfV" or x.dtype.itemsize == 1 else x


def calls(w, x, summed):
    """All handlers, of one device's x; the last dimension of put and get is that of rows."""
    half = max(x.shape[0] // 2, 1)
    out = {
        "ring": w.ppermute(x, RING),
        "nothing": w.ppermute(x, []),
        "gathered": w.all_gather(x),
        "tiled": w.all_gather(x, tiled=True),
        "exchanged": w.all_to_all(x, 0, 0, tiled=True),
        "broadcast": w.broadcast(x, N - 1),
        "barrier": w.barrier(x),
        "put": w.put(x, x[:half], RING, x.shape[0] - half),
        "got": w.get(x, RING, x.shape[0] - half, half),
        "put at": w.put(x, x[:half], RING, jnp.int32(x.shape[0] - half) + 0 * lax.axis_index("x")),
        "got at": w.get(x, RING, jnp.int32(x.shape[0] - half) + 0 * lax.axis_index("x"), half),
    }
    if summed:
        out |= {"sum": w.psum(x), "scattered": w.psum_scatter(x, tiled=True)}
    if summed and x.dtype.kind != "c":
        out |= {"max": w.pmax(x), "min": w.pmin(x)}
    return out


def expected(x, summed):
    """The same by numpy, of all devices' x."""
    half, before = max(x.shape[1] // 2, 1), np.roll(x, 1, axis=0)
    wide = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
    put = x.copy()
    put[:, x.shape[1] - half :] = before[:, :half]
    parts = x.reshape(N, N, x.shape[1] // N, *x.shape[2:])
    out = {
        "ring": before,
        "nothing": np.zeros_like(x),
        "gathered": np.stack([x] * N),
        "tiled": np.stack([np.concatenate(list(x))] * N),
        "exchanged": parts.swapaxes(0, 1).reshape(x.shape),
        "broadcast": np.stack([x[-1]] * N),
        "barrier": x,
        "put": put,
        "got": before[:, x.shape[1] - half :],
    }
    out |= {"put at": out["put"], "got at": out["got"]}
    if summed:
        total = wide.sum(0)
        out |= {"sum": np.stack([total] * N), "scattered": total.reshape(N, x.shape[1] // N, *x.shape[2:])}
    if summed and x.dtype.kind != "c":
        out |= {"max": np.stack([wide.max(0)] * N), "min": np.stack([wide.min(0)] * N)}
    return out


def same(w, arrays, summed):
    def one(*xs):
        return jax.tree.map(lambda y: y[None], [calls(w, x[0], summed) for x in xs])

    # Empty ones alone: on several devices XLA of JAX 0.11 crashes where some inputs of a shard_map are not used, as those are not.
    for some in ([x for x in arrays if x.size], *([x] for x in arrays if not x.size)):
        if some:
            run = mapped(one, mesh(), (P("x"),) * len(some), check=False)
            for x, got in zip(some, run(*some)):
                for name, want in expected(x, summed).items():
                    np.testing.assert_array_equal(plain(got[name]), plain(want), "%s of %s%r" % (name, x.dtype, x.shape[1:]))


def every_type_and_shape():
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:
        for dtype in TYPES:
            same(w, [numbers(shape, dtype) for shape in SHAPES], dtype != np.bool_)
        w.check()


def large_arrays():
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:
        count = 16_000_003 if N == 1 and not CPU else 20_003 if CPU else 1_000_003
        same(w, [numbers((N * count,), np.float32)], True)
        same(w, [numbers((N * (count // 3),), ml_dtypes.bfloat16)], True)


def rows_of_several_sizes():
    sizes = np.random.default_rng(2).integers(0, 4, (N, N)).astype(np.int32)  # of rank i to rank j
    rows = int(max(sizes.sum(0).max(), sizes.sum(1).max())) + 1
    offsets = np.cumsum(sizes, 1).astype(np.int32) - sizes
    into = np.cumsum(sizes, 0).astype(np.int32) - sizes
    x, want = np.random.default_rng(3).standard_normal((N, rows, 3)), np.full((N, rows, 3), -1.0)
    for i in range(N):
        for j in range(N):
            want[j, into[i, j] : into[i, j] + sizes[i, j]] = x[i, offsets[i, j] : offsets[i, j] + sizes[i, j]]
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:
        run = mapped(lambda *a: w.ragged_all_to_all(*(v[0] for v in a))[None], mesh(), (P("x"),) * 6)
        np.testing.assert_array_equal(run(x, np.full_like(x, -1.0), offsets, sizes, into, np.ascontiguousarray(sizes.T)), want)


def step(w, c, i):
    """One of a loop: a sum, a permute, a slice at a place that the loop counts."""
    c = w.put(c, c[:2] + 1, RING, i % 3)
    return w.ppermute(c, RING) + w.psum(c).astype(c.dtype) * 0 + w.get(c, RING, i % 4, 1)


def step_expected(c, i):
    put = c.copy()
    put[:, i % 3 : i % 3 + 2] = np.roll(c[:, :2], 1, axis=0) + 1
    return np.roll(put, 1, axis=0) + np.roll(put[:, i % 4 : i % 4 + 1], 1, axis=0)


def loops():
    """scan, while, vmap, and calls that nothing orders."""
    x = np.random.default_rng(1).integers(0, 9, (N, 4, 3)).astype(np.int64)
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:
        scan = mapped(lambda v: lax.scan(lambda c, i: (step(w, c, i), None), v[0], jnp.arange(21))[0][None], mesh())
        loop = mapped(lambda v, n: lax.while_loop(lambda s: s[0] < n[0], lambda s: (s[0] + 1, step(w, s[1], s[0])), (0 * n[0], v[0]))[1][None], mesh(), (P("x"), P("x")))
        want = x
        for i in range(21):
            want = step_expected(want, i)
        for _ in range(3):
            np.testing.assert_array_equal(scan(x), want)
            np.testing.assert_array_equal(loop(x, np.full(N, 21)), want)
        each = mapped(lambda v: jax.vmap(lambda u: w.psum(u) + w.ppermute(u, RING), in_axes=1, out_axes=1)(v[0])[None], mesh())
        np.testing.assert_array_equal(each(x), x.sum(0)[None] + np.roll(x, 1, axis=0))


def derivatives():
    x = np.random.default_rng(1).standard_normal((N, 6))
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:

        def one(v, s):
            y = w.put(v[0], w.ppermute(v[0], RING)[:2], RING, s[0]) * w.psum(v[0])
            return (w.get(y, RING, s[0], 3) ** 2).sum()[None]

        def same_by_jax(v):
            twice = jnp.roll(v, 2, axis=0)[:, :2]
            y = v.at[:, 1:3].set(twice) * v.sum(0)
            return (jnp.roll(y, 1, axis=0)[:, 1:4] ** 2).sum()

        run = mapped(one, mesh(), (P("x"), P("x")))
        got = jax.grad(lambda v: run(v, np.ones(N, np.int32)).sum())(x)
        np.testing.assert_allclose(got, jax.grad(same_by_jax)(x), rtol=1e-9)


def thrice(w):
    return lambda x: w.ppermute(w.ppermute(w.ppermute(x, RING) + 1, RING) + 1, RING)


def runs_far_ahead():
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:
        run = mapped(thrice(w), mesh())
        for y in jax.block_until_ready([run(jnp.arange(2.0 * N)) for _ in range(200)]):
            np.testing.assert_array_equal(y, np.roll(np.arange(2.0 * N), 6) + 2)


def no_handler_waits():
    """Where work takes long before a call, the program is launched long before it is done."""
    size = 4096
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:

        def of(n):  # times, which the program knows: else XLA itself waits to learn it
            def one(v):
                y = lax.fori_loop(0, n, lambda _, c: c @ v[0] * np.float32(1.0 / size), v[0])
                return w.psum(w.ppermute(y, RING))

            return mapped(one, mesh(), out=P())

        if CPU:
            return  # XLA itself runs programs where they are called
        run, x = of(300), jnp.ones((N, size, size), np.float32)
        jax.block_until_ready(run(x))
        begin = time.perf_counter()
        y = run(x)
        launched = time.perf_counter() - begin
        jax.block_until_ready(y)
        whole = time.perf_counter() - begin
        print("# launched after %.1f ms, done after %.1f ms" % (launched * 1e3, whole * 1e3), flush=True)
        assert launched < whole / 2


def errors():
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:
        x = jnp.arange(2.0 * N)
        run = mapped(w.psum, mesh(), out=P())
        np.testing.assert_array_equal(run(x), np.arange(2.0 * N).reshape(N, 2).sum(0))
        text = raises(lambda: mapped(w.psum, mesh(), out=P())(x.astype(ml_dtypes.float8_e4m3b11fnuz)), "f8e4m3b11fnuz has no op")
        assert "INVALID_ARGUMENT" in text

        def direct(kind, result, *args, **attributes):
            call = jax.ffi.ffi_call("spmt_" + kind, jax.ShapeDtypeStruct((result,), np.float64), has_side_effect=True)
            run = mapped(lambda v: call(v, *args, world=np.int64(w._id), **attributes), mesh(), check=False)
            return raises(lambda: run(x), "spmt " + kind)

        assert "to %d elements" % 3 in direct("all_reduce", 3, op=np.int64(0)).replace("to 3 do", "to 3 elements do")
        assert "attribute op is 77" in direct("all_reduce", 2, op=np.int64(77))
        assert "attribute root is %d" % N in direct("broadcast", 2, root=np.int64(N))
        assert "attribute to has 0 entries" in direct("permute", 2)
        if not CPU:
            assert "UNIMPLEMENTED" in direct("ragged_all_to_all", 2)
        # what was refused broke nothing for good: the run behind it has ranks to work with
        for _ in range(2):
            try:
                jax.block_until_ready(run(x))
            except Exception as error:
                assert not CPU and "did not take part" in str(error), error
        np.testing.assert_array_equal(run(x), np.arange(2.0 * N).reshape(N, 2).sum(0))
        w.check()
    raises(lambda: run(x), "no world", "was it closed?", "FAILED_PRECONDITION")


def a_world_that_fails():
    """It has no ranks to keep, of which a warning would tell."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ResourceWarning)
        raises(lambda: spmt.jax.world(mesh(), "x", heap_size=1 << 60), "spmt_init")
        gc.collect()
        assert not told, told[0].message


def command_buffers():
    """Calls in graphs: the data is right in each run, and fewer calls are made than runs."""
    if CPU:
        return
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "trace.json")
        env = {**os.environ, "SPMT_TEST_GRAPHS": "1", "SPMT_TRACE": trace, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        child = subprocess.run([sys.executable, __file__], env=env, timeout=600, capture_output=True, text=True)
        assert child.returncode == 0, child.stdout + child.stderr
        with open(trace) as file:
            events = json.load(file)
        events = events["traceEvents"] if isinstance(events, dict) else events
        names = [e.get("name", "") for e in events]
        made = {kind: sum("spmt_" + kind == name for name in names) for kind in ("all_reduce", "permute", "all_gather")}
        print("# %d runs, calls made: %r" % (RUNS, made), flush=True)
        assert 0 < made["permute"] < 3 * N * RUNS and 0 < made["all_reduce"] < N * RUNS, made


RUNS = 40


def in_command_buffers():
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT, graphs=True) as w:

        def one(v):
            y = thrice(w)(v[0])
            return w.psum(y)[None], w.all_gather(y)[None], w.get(y, RING, 1, 2)[None]

        run = mapped(one, mesh(), out=(P("x"),) * 3)
        for i in range(RUNS):
            x = np.arange(4.0 * N).reshape(N, 4) + i
            y = np.roll(x, 3, axis=0) + 2
            total, whole, got = run(x)
            np.testing.assert_array_equal(total, np.stack([y.sum(0)] * N))
            np.testing.assert_array_equal(whole, np.stack([y] * N))
            np.testing.assert_array_equal(got, np.roll(y[:, 1:3], 1, axis=0))
        w.check()


if __name__ == "__main__":
    print("# jax %s, %d x %s" % (jax.__version__, N, jax.devices()[0].device_kind), flush=True)
    if GRAPHS:
        main([in_command_buffers], 1)
    main([
        every_type_and_shape, large_arrays, rows_of_several_sizes, loops, derivatives, runs_far_ahead, no_handler_waits, errors, a_world_that_fails,
        command_buffers,
    ], 1)
