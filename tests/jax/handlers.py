# SPDX-License-Identifier: MIT
"""Every collective, type and shape beside jax.lax's own."""

import os
import subprocess
import sys
from functools import partial

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from common import CPU, N, P, RING, TIMEOUT, main, mapped, mesh, raises
from jax import lax

import spmt.jax

SHAPES = [(N,), (2, N, 5), (N, 0), (2 * N, 129)]
FLOATS = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
INTS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
COMPLEX = [np.complex64, np.complex128]
OTHERS = [np.bool_, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
MOVED = [getattr(ml_dtypes, "float8_" + name) for name in ("e3m4", "e4m3", "e4m3b11fnuz", "e4m3fnuz", "e5m2fnuz", "e8m0fnu")]  # never summed


def data(shape, dtype):
    """Numbers whose sums are exact in every type."""
    values = np.random.default_rng(1).integers(0, 2 if dtype == np.bool_ else 8, (N * shape[0], *shape[1:]))
    if np.dtype(dtype).kind == "c":
        values = values + 1j * values[::-1]
    return jnp.asarray(values.astype(dtype))


def moves(ppermute, all_gather, all_to_all, broadcast, x, dim):
    return [
        ppermute(x, perm=RING),
        ppermute(x, perm=[(0, N - 1), (N - 1, 0)] if N < 6 else [(0, 3), (5, 1)]),
        ppermute(x, perm=[(N - 1, 0)]),
        ppermute(x, perm=[]),
        all_gather(x),
        all_gather(x, axis=x.ndim - 1, tiled=True),
        all_gather(x, axis=x.ndim),
        all_to_all(x, split_axis=dim, concat_axis=0, tiled=True),
        all_to_all(x, split_axis=dim, concat_axis=x.ndim - 1, tiled=True),
        all_to_all(x if x.shape[dim] == N else x[:N], split_axis=dim, concat_axis=x.ndim - 1),
        broadcast(x, N - 1),
    ]


def lax_broadcast(x, root):
    return lax.all_gather(x, "x")[root]


def numbers(x):
    return np.asarray(x).astype(np.complex128)


def bits(x):
    return np.ascontiguousarray(x).view(np.uint8)


def mesh_for_lax(dtype):
    """Of CPUs where NCCL, by which lax moves between GPUs, does not have the type."""
    return jax.sharding.Mesh(np.array(jax.devices("cpu")[:N]), ("x",)) if dtype in MOVED else mesh()


def compare(fn_ours, fn_lax, shapes, dtype, seen=numbers):
    arrays = [data(shape, dtype) for shape in shapes]
    full = [a for a in arrays if a.size]  # lax cannot gather what is empty
    empty = [a for a in arrays if not a.size]  # alone: XLA of JAX 0.11 crashes where some of several inputs are not used, as empty ones are not

    def all_of(fn, *xs):
        return [[y[None] for y in fn(x, x.shape.index(N) if N in x.shape else 0)] for x in xs]

    ours = mapped(partial(all_of, fn_ours), mesh(), check=False)
    theirs = mapped(partial(all_of, fn_lax), mesh_for_lax(dtype), check=False)
    assert all(y.size == 0 for x in empty for y in ours(x)[0])
    assert full
    for shape, a, b in zip([x.shape for x in full], ours(*full), jax.block_until_ready(theirs(*map(np.asarray, full)))):
        for number, (y, z) in enumerate(zip(a, b)):
            assert y.dtype == z.dtype and y.shape == z.shape, (shape, number, y.dtype, z.dtype, y.shape, z.shape)
            np.testing.assert_array_equal(seen(y), seen(z), err_msg=str((dtype, shape, number)))


def moves_of(dtype):
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:
        compare(
            lambda x, dim: moves(w.ppermute, w.all_gather, w.all_to_all, w.broadcast, x, dim),
            lambda x, dim: moves(
                partial(lax.ppermute, axis_name="x"), partial(lax.all_gather, axis_name="x"), partial(lax.all_to_all, axis_name="x"),
                lax_broadcast, x, dim,
            ),
            SHAPES if dtype == np.float32 else SHAPES[1:2], dtype, bits,
        )


def sums_of(dtype, extremes=True):
    def sums(psum, pmax, pmin, psum_scatter, x, dim):
        first = x if x.shape[dim] == N else x[:N]
        some = [psum(x), psum_scatter(x, scatter_dimension=dim, tiled=True), psum_scatter(first, scatter_dimension=dim)]
        return some + ([pmax(x), pmin(x)] if extremes else [])

    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:
        compare(
            lambda x, dim: sums(w.psum, w.pmax, w.pmin, w.psum_scatter, x, dim),
            lambda x, dim: sums(*(partial(f, axis_name="x") for f in (lax.psum, lax.pmax, lax.pmin, lax.psum_scatter)), x, dim),
            SHAPES if dtype in (np.float32, np.int8) else SHAPES[1:2], dtype,
        )


def moves_of_every_width():
    for dtype in [*FLOATS, *INTS, *COMPLEX, *OTHERS, *MOVED]:
        moves_of(dtype)


def sums_of_floats():
    for dtype in FLOATS:
        sums_of(dtype)


def sums_of_integers():
    for dtype in INTS:
        sums_of(dtype)


def sums_of_complex_numbers():
    for dtype in COMPLEX:
        sums_of(dtype, extremes=False)


def sums_of_eight_bits():
    """Made in f32 and rounded once, where lax rounds at each step."""
    rng = np.random.default_rng(4)
    for dtype in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
        x = rng.standard_normal((N, N, 33)).astype(dtype)
        whole = x.astype(np.float32)
        with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:
            run = mapped(lambda v: (w.psum(v[0]), w.pmax(v[0]), w.pmin(v[0])), mesh(), out=P())
            for y, z in zip(run(x), (whole.sum(0), whole.max(0), whole.min(0))):
                assert y.dtype == dtype
                np.testing.assert_array_equal(np.asarray(y).astype(np.float32), z.astype(dtype).astype(np.float32))
            y = mapped(lambda v: w.psum_scatter(v[0], tiled=True), mesh())(x)
            np.testing.assert_array_equal(np.asarray(y).astype(np.float32), whole.sum(0).astype(dtype).astype(np.float32))


def bools_are_counted():
    x = jnp.arange(2 * N) % 3 == 0
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:
        for ours, own in ((w.psum, lax.psum), (w.pmax, lax.pmax), (w.pmin, lax.pmin)):
            a, b = mapped(ours, mesh(), out=P())(x), mapped(lambda v: own(v, "x"), mesh(), out=P())(x)
            assert a.dtype == b.dtype and (a == b).all()


def not_a_number_wins():
    x = jnp.array([1.0, np.nan, 3.0, -np.inf, np.inf, 0.0, 2.0, 5.0][:N], np.float32)
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:
        for ours in (w.psum, w.pmax, w.pmin):
            assert np.isnan(mapped(ours, mesh(), out=P())(x)).all()


def by_other_names():
    x = jnp.arange(N * 3.0, dtype=np.float32)
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:
        for shift in (0, 1, N - 1, -1, 2 * N + 1):
            np.testing.assert_array_equal(mapped(lambda v, s=shift: w.permute(v, s), mesh())(x), jnp.roll(x, 3 * shift))
        for op, same in (("sum", w.psum), ("max", w.pmax), ("min", w.pmin)):
            a, b = mapped(lambda v, o=op: w.all_reduce(v, o), mesh(), out=P())(x), mapped(same, mesh(), out=P())(x)
            np.testing.assert_array_equal(a, b)
        for wrong, error in ((lambda v: w.all_reduce(v, "prod"), ValueError), (lambda v: w.all_reduce(v, ["sum"]), ValueError), (lambda v: w.permute(v, 1.5), TypeError)):
            try:
                mapped(wrong, mesh())(x)
            except error:
                continue
            raise AssertionError("no %s" % error.__name__)


def large_arrays():
    x = jnp.arange(N * 300_001.0, dtype=np.float32)
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:
        np.testing.assert_array_equal(mapped(lambda v: w.ppermute(v, RING), mesh())(x), jnp.roll(x, 300_001))
        np.testing.assert_array_equal(mapped(lambda v: w.ppermute(v, [(N - 1, 0)]), mesh())(x)[300_001:], 0)
        np.testing.assert_allclose(mapped(w.psum, mesh(), out=P())(x), x.reshape(N, -1).sum(0), rtol=1e-6)
        np.testing.assert_array_equal(mapped(w.all_gather, mesh(), out=P("x"))(x)[N + 1], x.reshape(N, -1)[1])


def trees():
    tree = {"a": jnp.arange(float(N)), "b": [jnp.arange(2 * N), jnp.ones((N, 2))]}
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:
        ours = mapped(w.psum, mesh(), out=P())(tree)
    jax.tree.map(np.testing.assert_array_equal, ours, mapped(lambda t: lax.psum(t, "x"), mesh(), out=P())(tree))


def parts_of_a_mesh():
    columns = N // 2
    on = mesh((2, columns), ("y", "x"))
    x = jnp.arange(16.0 * N).reshape(8, 2 * N)
    with spmt.jax.world(on, "x", timeout=TIMEOUT) as wx, spmt.jax.world(on, "y", timeout=TIMEOUT) as wy, spmt.jax.world(
        on, ("x", "y"), timeout=TIMEOUT
    ) as wxy:

        def ours(v):
            return wx.psum(v) + 2 * wy.psum(v) + wxy.psum(v) + wx.all_gather(v)[columns - 1] + wy.broadcast(v, 1)

        def own(v):
            return (
                lax.psum(v, "x") + 2 * lax.psum(v, "y") + lax.psum(v, ("x", "y"))
                + lax.all_gather(v, "x")[columns - 1] + lax.all_gather(v, "y")[1]
            )

        specs = P("y", "x")
        np.testing.assert_array_equal(mapped(ours, on, specs, specs)(x), mapped(own, on, specs, specs)(x))
        # lax.ppermute counts in the mesh's order, whatever order the axes are named in, and from JAX 0.11 on wants that one.
        blocks = np.asarray(x).reshape(2, 4, columns, 4).transpose(0, 2, 1, 3).reshape(N, 4, 4)
        moved = np.asarray(mapped(lambda v: wxy.ppermute(v, RING), on, specs, specs)(x))
        moved = moved.reshape(2, 4, columns, 4).transpose(0, 2, 1, 3).reshape(N, 4, 4)
        np.testing.assert_array_equal(moved, np.roll(blocks, 1, axis=0))


def some_devices():
    chosen = [5, 2, 7] if N == 8 else list(range(N))[::-1]
    n = len(chosen)
    on = jax.sharding.Mesh(np.array(jax.devices())[chosen], ("x",))
    with spmt.jax.world(on, timeout=TIMEOUT) as w, spmt.jax.world(mesh((1,)), timeout=TIMEOUT) as one:
        ring = [(i, (i + 1) % n) for i in range(n)]
        np.testing.assert_array_equal(mapped(lambda v: w.ppermute(v, ring), on)(jnp.arange(n)), np.roll(np.arange(n), 1))
        np.testing.assert_array_equal(mapped(lambda v: one.psum(v), mesh((1,)))(jnp.arange(3)), [0, 1, 2])


def ragged(host=CPU):
    rng = np.random.default_rng(2)
    sizes = rng.integers(0, 4, (N, N)).astype(np.int32)  # of rank i to rank j
    rows = int(max(sizes.sum(0).max(), sizes.sum(1).max())) + 1
    offsets = np.concatenate([np.zeros((N, 1), np.int32), np.cumsum(sizes, 1)[:, :-1]], 1)
    into = np.concatenate([np.zeros((1, N), np.int32), np.cumsum(sizes, 0)[:-1]], 0)  # where rank i's rows begin at j
    x = rng.standard_normal((N, rows, 3))
    want = np.full((N, rows, 3), -1.0)
    for i in range(N):
        for j in range(N):
            want[j, into[i, j] : into[i, j] + sizes[i, j]] = x[i, offsets[i, j] : offsets[i, j] + sizes[i, j]]
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:
        w._params["host"] = host

        def one(*args):
            return w.ragged_all_to_all(*(a[0] for a in args))[None]

        args = [jnp.asarray(a) for a in (x, np.full_like(x, -1.0), offsets, sizes, into, sizes.T)]
        run = mapped(one, mesh(), (P("x"),) * 6)
        np.testing.assert_array_equal(run(*args), want)
        cotangent = rng.standard_normal(want.shape)

        def loss(operand, output):
            return (run(operand, output, *args[2:]) * cotangent).sum()

        got = jax.grad(loss, (0, 1))(*args[:2])
        wanted = [np.zeros_like(x), cotangent.copy()]
        for i in range(N):
            for j in range(N):
                here, there = slice(offsets[i, j], offsets[i, j] + sizes[i, j]), slice(into[i, j], into[i, j] + sizes[i, j])
                wanted[0][i, here] = cotangent[j, there]
                wanted[1][j, there] = 0
        for a, b in zip(got, wanted):
            np.testing.assert_allclose(a, b)
        if host:  # no handler reads tables of a GPU
            wrong = list(args)
            sender = min(2, N - 1)
            wrong[3] = wrong[3].at[sender, sender // 2].add(1)
            raises(lambda: run(*wrong), "ragged_all_to_all: device %d sends" % sender)


def barriers():
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:

        def one(x):
            w.barrier()
            return w.barrier(x + 1)

        np.testing.assert_array_equal(mapped(one, mesh())(jnp.arange(N)), np.arange(1, N + 1))


def barriers_under_vmap():
    """One call for all entries, with a value and without, however the mapped function holds it."""
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:

        def once(v):
            w.barrier()
            return w.barrier(v) + 1

        forms = [
            jax.vmap(once),
            jax.vmap(once, axis_name="entries"),
            jax.vmap(jax.jit(once)),
            lambda v: jax.vmap(jax.vmap(once))(v.reshape(2, 2)).reshape(4),
            jax.vmap(lambda v: lax.scan(lambda c, _: (once(c), None), v - 2, None, length=3)[0]),
            jax.vmap(lambda v: lax.cond(v > 1, once, lambda u: u + 1, v)),
            lambda v: jax.vmap(jax.value_and_grad(lambda u: once(u)))(v)[0],
        ]
        x = jnp.arange(4.0 * N).reshape(N, 4)
        for form in forms:
            run = mapped(lambda v: form(v[0])[None], mesh())
            np.testing.assert_array_equal(run(x), x + 1)
            assert run.lower(x).as_text().count("@spmt_barrier") == 2
        run = jax.jit(jax.vmap(mapped(once, mesh()), in_axes=1, out_axes=1))
        np.testing.assert_array_equal(run(x), x + 1)
        assert run.lower(x).as_text().count("@spmt_barrier") == 2


def wrong_arguments():
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:
        x = jnp.arange(2.0 * N)
        raises(lambda: mapped(lambda v: w.ppermute(v, [(0, 1), (N - 1, 1), (1, 1)]), mesh())(x), "there twice")
        raises(lambda: mapped(lambda v: w.ppermute(v, [(0, N)]), mesh())(x), "none of %d" % N)
        raises(lambda: mapped(lambda v: w.broadcast(v, N), mesh())(x), "root is %d" % N)
        odd = jnp.arange(N * (N + 1.0))  # N + 1 elements a device
        raises(lambda: mapped(lambda v: w.psum_scatter(v), mesh())(odd), "does not split among %d devices untiled" % N)
        raises(lambda: mapped(lambda v: w.psum_scatter(v, tiled=True), mesh())(odd), "does not split among %d" % N)
        raises(lambda: mapped(lambda v: w.all_gather(v, axis=5), mesh())(x), "dimension 5")
        raises(lambda: mapped(w.psum, mesh(), out=P())(x.astype(ml_dtypes.float8_e4m3b11fnuz)), "f8e4m3b11fnuz has no op sum")
        raises(lambda: w.psum(1.0), "x")
        raises(lambda: spmt.jax.world(mesh(), "z"), "axis is 'z'")
        raises(lambda: spmt.jax.world(mesh(), "x", timeout=-1), "timeout is -1")
        raises(lambda: jax.jit(lambda v: (w.barrier(), v)[1])(x), "x")
        fractions = [
            (lambda v: w.broadcast(v, 1.5), "root is 1.5"),
            (lambda v: w.get(v, RING, 0.7, 1), "start is 0.7"),
            (lambda v: w.get(v, RING, 0, 1.0), "size is 1.0"),
            (lambda v: w.put(v, v[:1], RING, [0.0] * N), "start is 0.0"),
        ]
        for fn, what in fractions:
            raises(lambda: mapped(fn, mesh())(x), what + ", not an integer")
        assert mapped(lambda v: w.broadcast(v, np.int8(1)), mesh(), check=False)(x)[0] == 2
    raises(lambda: w.psum(x), "the world is closed")
    raises(lambda: mapped(lambda v: (w.barrier(), v)[1], mesh()).lower(x), "the world is closed")


def wrong_kinds_of_arguments():
    """What is no number, pair or mesh where one has to be: the sentence names the argument and what it may be."""

    def refuses(kind, fn, *words):
        try:
            fn()
        except kind as error:
            assert type(error) is kind and all(word in str(error) for word in words), error
        else:
            raise AssertionError("no %s of %r" % (kind.__name__, words))

    for mesh_like in ("hello", None, mesh().abstract_mesh):
        for axis in (None, "x"):
            refuses(TypeError, lambda: spmt.jax.world(mesh_like, axis), "mesh is ", "not a jax.sharding.Mesh of devices")
    for shape in ((0,), (1, 0)):
        empty = jax.sharding.Mesh(np.array(jax.devices()[:0]).reshape(shape), ("x", "y")[: len(shape)])
        for axis in (None, "x"):
            refuses(ValueError, lambda: spmt.jax.world(empty, axis), "which has no devices")
    for kind, size in ((ValueError, -1), (ValueError, 1 << 64), (TypeError, 1.5), (TypeError, None)):
        refuses(kind, lambda: spmt.jax.world(mesh(), heap_size=size), "heap_size is %r, not a" % (size,))
    refuses(TypeError, lambda: spmt.jax.world(mesh(), timeout="1"), "timeout is '1', not a number of seconds")
    refuses(TypeError, lambda: spmt.jax.patch(timeout=None).__enter__(), "timeout is None, not a number of seconds")
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:
        run = lambda fn: lambda: mapped(fn, mesh(), check=False).lower(jnp.arange(2.0 * N))  # noqa: E731
        for kind, perm in (
            (ValueError, [(0,)]), (ValueError, [(0, 1, 0)]), (TypeError, [(0.5, 1)]), (TypeError, [0, 1]), (TypeError, 3), (TypeError, "ab"), (TypeError, None),
        ):
            for fn in (lambda v: w.ppermute(v, perm), lambda v: w.put(v, v, perm), lambda v: w.get(v, perm, 0, 1)):
                refuses(kind, run(fn), "perm is %r, not a list of pairs of integers" % (perm,))
        for tree in (lambda v: (v, v), lambda v: [1.0, 2.0], lambda v: {"a": v}, lambda v: None):
            refuses(TypeError, run(lambda v: w.put(tree(v), v, RING)), "put: ", " is not an array")
            refuses(TypeError, run(lambda v: w.put(v, tree(v), RING)), "put: ", " is not an array")
            refuses(TypeError, run(lambda v: w.get(tree(v), RING, 0, 1)), "get: ", " is not an array")
            tables = [np.zeros(N, np.int32)] * 4
            refuses(TypeError, run(lambda v: w.ragged_all_to_all(v, tree(v), *tables)), "ragged_all_to_all: ", " is not an array")
        for start in (lambda v: [v[0].astype(int)] * N, lambda v: [[0]] * N, lambda v: [[0], [1, 2]] * (N // 2)):
            refuses(TypeError, run(lambda v: w.put(v, v, RING, start(v))), "start is ", ", not an integer")
        for kind, axis, words in ((TypeError, 1.5, "%s is 1.5, not an integer"), (TypeError, None, "%s is None, not an integer"), (ValueError, 5, "%s is dimension 5 of")):
            refuses(kind, run(lambda v: w.all_gather(v, axis=axis)), words % "axis")
            refuses(kind, run(lambda v: w.all_gather(v, axis=axis, tiled=True)), words % "axis")
            refuses(kind, run(lambda v: w.psum_scatter(v, axis)), words % "scatter_dimension")
            refuses(kind, run(lambda v: w.all_to_all(v, axis, 0)), words % "split_axis")
            refuses(kind, run(lambda v: w.all_to_all(v, 0, axis)), words % "concat_axis")


def keys_are_no_numbers():
    """As with lax: their bits are moved, never added."""
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:

        def of(fn):
            return mapped(lambda v: jax.random.key_data(fn(jax.random.split(jax.random.key(v[0].astype(int)), N))), mesh(), check=False)(jnp.arange(float(N)))

        for fn in (w.psum, w.pmax, w.pmin, w.psum_scatter):
            try:
                of(fn)
            except TypeError as error:
                assert fn.__name__ in str(error) and "key<" in str(error), error
            else:
                raise AssertionError("%s took keys" % fn.__name__)
        np.testing.assert_array_equal(of(lambda k: w.ppermute(k, RING)), of(lambda k: lax.ppermute(k, "x", RING)))


def other_meshes():
    """Axes of the same name, along which other devices are than in the world, or in another order: what came out was wrong, or hung."""
    x, devices, columns = jnp.arange(float(N)), np.array(jax.devices())[:N], N // 2
    on, turned = (jax.sharding.Mesh(d, ("y", "x")) for d in (devices.reshape(2, columns), devices.reshape(columns, 2).T))
    reverse, half = (jax.sharding.Mesh(d, ("x",)) for d in (devices[::-1], devices[:columns]))
    with spmt.jax.world(mesh(), "x", timeout=2) as w, spmt.jax.world(on, "x", timeout=2) as rows, spmt.jax.world(
        half, "x", timeout=2
    ) as small:
        others = [(w.psum, half), (w.psum, reverse), (small.psum, mesh()), (lambda v: w.ppermute(v, RING), reverse)]
        if columns > 1:  # else those are the same groups, of one device each
            others.append((rows.psum, turned))
        for fn, where in others:
            raises(lambda: mapped(fn, where, check=False)(x), "shard_map's mesh has other devices along 'x' than the world")
        raises(lambda: mapped(lambda v: (w.barrier(), v)[1], half)(x), "spmt barrier: %d along 'x', not the world's %d devices" % (columns, N))
        partly = lambda v: jax.shard_map(rows.psum, mesh=on, in_specs=P("x"), out_specs=P(), axis_names={"x"})(v)  # noqa: E731
        raises(lambda: jax.jit(partly)(x), "shard_map leaves 'y' of its mesh to XLA")
        # An abstract mesh has no devices, and that of a shard_map inside another is one.
        raises(lambda: mapped(w.psum, mesh().abstract_mesh, out=P())(jax.device_put(x, jax.NamedSharding(mesh(), P("x")))), "mesh is abstract")
        inner = lambda v: jax.shard_map(rows.psum, in_specs=P("x"), out_specs=P(), axis_names={"x"})(v)  # noqa: E731
        nested = jax.shard_map(inner, mesh=on, in_specs=P("y"), out_specs=P("y"), axis_names={"y"})
        raises(lambda: jax.jit(nested)(x), "shard_map's mesh is abstract, as that of one inside another is")
        # A part of the groups, in their order, are of the world.
        assert mapped(rows.psum, half, out=P())(x)[0] == x.reshape(columns, -1).sum(0)[0]


def an_axis_of_vmap():
    """No devices are along it: that is said when the program is compiled. That of pmap has devices."""
    on, x = mesh(names=("y",)), jnp.ones((N * N, 3))
    with spmt.jax.world(mesh(), "x", timeout=2) as w:
        for fn in (w.psum, w.pmax, lambda v: w.ppermute(v, RING), lambda v: (w.barrier(), v)[1]):
            over = jax.vmap(fn, axis_name="x")
            raises(lambda: jax.jit(over)(x[:N]), "axis 'x' is not one of a shard_map")
            raises(lambda: mapped(over, on, P("y"), P("y"), check=False)(x), "axis 'x' is not one of a shard_map")
        inner = jax.vmap(lambda v: (w.barrier(), v)[1], axis_name="x")
        raises(lambda: mapped(inner, mesh())(x[: N * (N - 1)]), "%d along 'x', not the world's %d devices" % (N - 1, N), "a jax.vmap's")
        np.testing.assert_array_equal(jax.pmap(w.psum, axis_name="x", devices=list(mesh().devices))(x[:N]), jnp.full((N, 3), N))


def weak_types():
    """A Python number stays one where jax.lax keeps it, so that a narrow type times a sum of such stays narrow."""
    x = jnp.ones(N, jnp.bfloat16)
    whole = lambda f: lambda s: f(jnp.broadcast_to(s, (N,)))  # noqa: E731
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:
        pairs = [
            (lambda s: w.ppermute(s, RING), lambda s: lax.ppermute(s, "x", RING)),
            (w.all_gather, lambda s: lax.all_gather(s, "x")),
            (w.psum, lambda s: lax.psum(s, "x")),
            (w.pmax, lambda s: lax.pmax(s, "x")),
            (whole(w.psum_scatter), whole(lambda s: lax.psum_scatter(s, "x"))),
            (whole(lambda s: w.all_to_all(s, 0, 0)), whole(lambda s: lax.all_to_all(s, "x", 0, 0))),
        ]
        for i, pair in enumerate(pairs):
            for check in (True, False):
                ours, own = (
                    jax.eval_shape(mapped(lambda v, s: v * jnp.ravel(f(s))[0], mesh(), (P("x"), P()), check=check), x, 2.0).dtype for f in pair
                )
                assert ours == own, (i, check, ours, own)


def numbers_beside_arrays():
    """A sum of a tree: what is no traced value is multiplied, leaf by leaf, and stays what jax.lax makes of it."""
    x = jnp.ones(2 * N, jnp.float16)
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:

        def mean(psum, number):
            def one(v):
                total, count = psum((v, number))
                return total / jnp.ravel(count)[0]

            return one

        for number in (1.0, 1, True, 2j, np.float32(1), np.int8(3), np.array([True, False]), np.ones(2), jnp.ones(2, jnp.float32)):
            for check in (True, False):
                ours, own = (mapped(mean(psum, number), mesh(), out=P(), check=check) for psum in (w.psum, lambda t: lax.psum(t, "x")))
                got, want = ours(x), own(x)
                assert got.dtype == want.dtype and (got == want).all(), (number, check, got, want)
                text = ours.lower(x).as_text()
                assert text.count("@spmt_all_reduce") == 1 and "stablehlo.all_reduce" not in text, (number, check)


def many_devices():
    """Of the CPU, which are as many as XLA was asked for: more than the library's own virtual ones."""
    text = """
import numpy, jax, jax.numpy as jnp, spmt.jax
on, x = jax.sharding.Mesh(numpy.array(jax.devices()), ("x",)), jnp.arange(38.0)
run = lambda fn: numpy.asarray(jax.jit(jax.shard_map(fn, mesh=on, in_specs=jax.P("x"), out_specs=jax.P("x")))(x))
with spmt.jax.world(on, "x") as w:
    for _ in range(20):
        numpy.testing.assert_array_equal(run(lambda v: w.permute(v, 1)), numpy.roll(numpy.arange(38.0), 2))
        numpy.testing.assert_array_equal(run(lambda v: w.psum(v) + 0 * v), numpy.resize([342.0, 361.0], 38))
with spmt.jax.patch():
    numpy.testing.assert_array_equal(run(lambda v: jax.lax.psum(v, "x") + 0 * v), numpy.resize([342.0, 361.0], 38))
"""
    flags = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=19", "NPROC": "76"}
    subprocess.run([sys.executable, "-c", text], env={**os.environ, **flags}, check=True, timeout=TIMEOUT)


def long_timeouts():
    """Longer than what a clock counts is as long as can be."""
    for seconds in (1e10, 1e300, float("inf")):
        with spmt.jax.world(mesh(), "x", timeout=seconds) as w:
            assert mapped(w.psum, mesh(), out=P())(jnp.ones(N))[0] == N


def sliced(x, rows, pairs, start):
    """What put makes of arrays and rows by device, and get of them."""
    put, got = x.copy(), np.zeros_like(rows)
    for s, t in pairs:
        put[t, start[s] : start[s] + len(rows[s])] = rows[s]
        got[t] = x[s, start[t] : start[t] + len(rows[s])]
    return put, got


def slices_of(w, dtype, width, tail):
    x = (np.arange(N * 3 * width * 5) % 97).astype(dtype).reshape(N, 3 * width, 5)[..., :tail]
    rows = (np.arange(N * width * 5) % 89 + 1).astype(dtype).reshape(N, width, 5)[..., :tail]
    pairs = [(s, (s + 1) % N) for s in range(N - 1)]
    start = [(s * 7) % (2 * width + 1) for s in range(N)]
    put, got = sliced(x, rows, pairs, start)
    run = mapped(lambda a, b: w.put(a[0], b[0], pairs, start)[None], mesh(), (P("x"), P("x")))
    np.testing.assert_array_equal(np.asarray(run(x, rows)).astype(np.complex128), put.astype(np.complex128))
    run = mapped(lambda a: w.get(a[0], pairs, start, width)[None], mesh())
    np.testing.assert_array_equal(np.asarray(run(x)).astype(np.complex128), got.astype(np.complex128))


def put_and_get_of_slices():
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:
        for dtype in [np.float32, ml_dtypes.bfloat16, np.complex128, *OTHERS]:
            slices_of(w, dtype, 2, 5)
        slices_of(w, np.float32, 0, 5)
        slices_of(w, np.float32, 2, 0)
        slices_of(w, np.float32, 20_000, 5)


def slices_of_several():
    """Two devices write to one, and all get of one; both under vmap and scan."""
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:
        x, rows = np.zeros((N, 6, 3), np.float32), np.repeat(np.arange(1.0, N + 1, dtype=np.float32), 6).reshape(N, 2, 3)
        pairs, start = [(0, 1), (N - 1, 1)], [0] * (N - 1) + [3]
        put = np.zeros_like(x)
        put[1, 0:2], put[1, 3:5] = 1, N
        np.testing.assert_array_equal(mapped(lambda a, b: w.put(a[0], b[0], pairs, start)[None], mesh(), (P("x"),) * 2)(x, rows), put)
        everyone = [(1, t) for t in range(N)]
        got = mapped(lambda a: w.get(a[0], everyone, 3, 2)[None], mesh())(put)
        np.testing.assert_array_equal(got, np.full((N, 2, 3), N))

        def mapped_over(a, b):  # the last dimension
            return jax.vmap(lambda u, v: w.put(u, v, pairs, start), in_axes=-1, out_axes=-1)(a[0], b[0])[None]

        np.testing.assert_array_equal(mapped(mapped_over, mesh(), (P("x"),) * 2)(x, rows), put)

        def again(a, b):
            return lax.scan(lambda c, _: (w.put(c, b[0] + w.get(c, [(0, 0)], 0, 2), pairs, start), None), a[0], None, length=3)[0][None]

        np.testing.assert_array_equal(mapped(again, mesh(), (P("x"),) * 2)(x, rows), put)


def traced_starts():
    """Starts that are operands: what lax.dynamic_slice and lax.dynamic_update_slice make of them, beyond the ends too."""
    rng = np.random.default_rng(4)
    pairs = [(s, (s + 1) % N) for s in range(N - 1)]
    two, everyone = [(0, 1), (N - 1, 1)], [(1, t) for t in range(N)]
    specs = (P("x"),) * 3
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:
        put = {name: mapped(lambda a, b, s, p=p: w.put(a[0], b[0], p, s[0])[None], mesh(), specs) for name, p in (("pairs", pairs), ("two", two))}
        get = {name: mapped(lambda a, s, p=p: w.get(a[0], p, s[0], 2)[None], mesh(), specs[:2]) for name, p in (("pairs", pairs), ("everyone", everyone))}
        for dtype in (np.float32, ml_dtypes.bfloat16, np.int8):
            x = rng.integers(0, 50, (N, 6, 3)).astype(dtype)
            rows = rng.integers(50, 99, (N, 2, 3)).astype(dtype)
            for starts in (np.arange(N) % 5, np.arange(N) - 3, np.full(N, 99), np.full(N, -99, np.int64)):
                starts = starts.astype(np.int32) if dtype == np.int8 else starts.astype(np.int64)
                for name, p in (("pairs", pairs), ("two", two)):
                    want = jnp.asarray(x)
                    for s, t in p:
                        want = want.at[t].set(lax.dynamic_update_slice_in_dim(want[t], jnp.asarray(rows[s]), jnp.asarray(starts[s]), 0))
                    np.testing.assert_array_equal(put[name](x, rows, starts), want)
                for name, p in (("pairs", pairs), ("everyone", everyone)):
                    want = np.zeros_like(rows)
                    for s, t in p:
                        want[t] = lax.dynamic_slice_in_dim(jnp.asarray(x[s]), jnp.asarray(starts[t]), 2, 0)
                    np.testing.assert_array_equal(get[name](x, starts), want)

        def many(a, b, s):  # a ring of slices, whose start the loop counts
            def step(carry, i):
                y = w.put(carry, b[0] + i.astype(b.dtype), RING, (s[0] + i) % 5)
                return y, w.get(y, RING, i % 5, 2).sum()

            return jax.tree.map(lambda v: v[None], lax.scan(step, a[0], jnp.arange(5)))

        x, rows, starts = np.zeros((N, 6, 3)), rng.standard_normal((N, 2, 3)), np.arange(N) % 5
        got, sums = mapped(many, mesh(), specs, (P("x"), P("x")))(x, rows, starts)
        for i in range(5):
            for s in range(N):
                x[(s + 1) % N, (starts[s] + i) % 5 :][:2] = rows[s] + i
            np.testing.assert_allclose(np.asarray(sums)[:, i], np.roll(x[:, i % 5 : i % 5 + 2].sum((1, 2)), 1))
        np.testing.assert_allclose(got, x)

        # under vmap, each entry with a start of its own
        batch = mapped(lambda a, s: jax.vmap(lambda u, v: w.get(u, RING, v, 2))(a[0], s[0])[None], mesh(), specs[:2])
        x, starts = rng.standard_normal((N, 4, 6, 3)), rng.integers(0, 5, (N, 4))
        want = np.stack([[x[t - 1, k, starts[t, k] : starts[t, k] + 2] for k in range(4)] for t in range(N)])
        np.testing.assert_array_equal(batch(x, starts), want)
        raises(lambda: mapped(lambda a, s: w.get(a[0], RING, s[0], 2)[None], mesh(), specs[:2])(x[:, 0], starts), "this device's own, not int64(4,)")
        raises(lambda: mapped(lambda a, s: w.get(a[0], RING, s[0], 7)[None], mesh(), specs[:2])(x[:, 0], starts[:, 0]), "7 rows from row 0 on")


def derivatives_of_traced_starts():
    rng = np.random.default_rng(5)
    x, rows, starts = rng.standard_normal((N, 6, 2)), rng.standard_normal((N, 2, 2)), np.array([s % 5 for s in range(N)])
    pairs, everyone = [(s, (s + 1) % N) for s in range(N - 1)], [(1, t) for t in range(N)]
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:

        def one(a, b, s):
            y = w.put(a[0], b[0], pairs, s[0])
            return (y**2).sum()[None] + (w.get(y, everyone, s[0], 2) ** 3).sum()[None]

        def same(a, b):
            y = a
            for s, t in pairs:
                y = y.at[t, starts[s] : starts[s] + 2].set(b[s])
            return (y**2).sum() + sum((y[1, starts[t] : starts[t] + 2] ** 3).sum() for t in range(N))

        run = mapped(one, mesh(), (P("x"),) * 3)
        got = jax.grad(lambda a, b: run(a, b, starts).sum(), (0, 1))(x, rows)
        for a, b in zip(got, jax.grad(same, (0, 1))(x, rows)):
            np.testing.assert_allclose(a, b, rtol=1e-6)


def derivatives_of_slices():
    rng = np.random.default_rng(3)
    x, rows = rng.standard_normal((N, 6, 2)), rng.standard_normal((N, 2, 2))
    pairs, start = [(s, (s + 1) % N) for s in range(N - 1)], [s % 5 for s in range(N)]
    everyone = [(1, t) for t in range(N)]
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:

        def one(a, b):
            y = w.put(a[0], b[0], pairs, start)
            return (y**2).sum()[None] + (w.get(y, everyone, start, 3) ** 3).sum()[None]

        def same(a, b):
            y = a
            for s, t in pairs:
                y = y.at[t, start[s] : start[s] + 2].set(b[s])
            return (y**2).sum() + sum((y[1, start[t] : start[t] + 3] ** 3).sum() for t in range(N) if start[t] <= 3)

        start = [min(s, 3) for s in start]
        run = mapped(one, mesh(), (P("x"),) * 2)
        got = jax.grad(lambda a, b: run(a, b).sum(), (0, 1))(x, rows)
        for a, b in zip(got, jax.grad(same, (0, 1))(x, rows)):
            np.testing.assert_allclose(a, b, rtol=1e-6)


def wrong_slices():
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:
        x, rows = jnp.zeros((N * 6, 3)), jnp.zeros((N * 2, 3))
        put = lambda *a: lambda: mapped(lambda u, v: w.put(u, v, *a), mesh(), (P("x"),) * 2)(x, rows)  # noqa: E731
        raises(put([(0, 1), (0, 0)]), "a source is there twice")
        raises(put([(0, N)]), "none of %d" % N)
        raises(put([(0, 1)], 5), "2 rows from row 5 on are not in an array of 6")
        raises(put([(0, 1)], [0]), "start has 1 entries")
        raises(put([(0, 1), (1, 1)]), "ranks 0 and 1 write the same rows of rank 1")
        raises(lambda: mapped(lambda u: w.put(u, u[:, :2], [(0, 1)]), mesh())(x), "array of float64(6, 3), rows of float64(6, 2)")
        raises(lambda: mapped(lambda u: w.get(u, [(0, 1), (1, 1)], 0, 2), mesh())(x), "a target is there twice")
        raises(lambda: mapped(lambda u: w.get(u, [(0, 1)], -1, 2), mesh())(x), "from row -1 on")


def forms_for_gpus():
    """What programs for GPUs have instead of a handler that fills, and of one that reads tables: on whatever there is."""
    w = spmt.jax.world(mesh(), "x", timeout=TIMEOUT, graphs=True)
    w._params["host"] = False
    with w:
        x = jnp.arange(2.0 * N)
        np.testing.assert_array_equal(
            mapped(lambda v: w.ppermute(v, [(0, 1)]), mesh())(x), mapped(lambda v: lax.ppermute(v, "x", [(0, 1)]), mesh())(x)
        )
        assert mapped(w.psum, mesh(), out=P())(x)[0] == sum(range(0, 2 * N, 2))
    ragged(host=False)


def closed_worlds():
    w = spmt.jax.world(mesh(), "x", timeout=TIMEOUT)
    f = mapped(w.psum, mesh(), out=P())
    y = f(jnp.arange(float(N)))
    w.close()
    assert float(y[0]) == N * (N - 1) / 2
    raises(lambda: f(jnp.arange(float(N))), "no world", "was it closed?")


if __name__ == "__main__":
    main([
        moves_of_every_width, sums_of_floats, sums_of_integers, sums_of_complex_numbers, sums_of_eight_bits, bools_are_counted, not_a_number_wins, by_other_names, large_arrays, trees,
        parts_of_a_mesh, some_devices, ragged, barriers, barriers_under_vmap, put_and_get_of_slices, slices_of_several, traced_starts, derivatives_of_traced_starts, derivatives_of_slices,
        wrong_slices,
        forms_for_gpus, wrong_arguments, wrong_kinds_of_arguments, keys_are_no_numbers, other_meshes, an_axis_of_vmap, weak_types, numbers_beside_arrays, many_devices, long_timeouts, closed_worlds,
    ])
