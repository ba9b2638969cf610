# SPDX-License-Identifier: MIT
"""vmap, grad, jvp and scan: beside jax.lax's where those are right, else beside numbers."""

import importlib
import os
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from common import N, P, RING, TIMEOUT, main, mapped, mesh, varying
from jax import lax
from jax.test_util import check_grads

import spmt.jax

PAIRS = [(0, 3), (5, 1), (7, 7)] if N == 8 else [(0, N - 1)]
ROOT = min(2, N - 1)


def calls(w):
    """Name, ours, lax's, and the shape of an argument."""
    return [
        ("psum", w.psum, partial(lax.psum, axis_name="x"), (3,)),
        ("ppermute", lambda x: w.ppermute(x, RING), lambda x: lax.ppermute(x, "x", RING), (3,)),
        ("ppermute of pairs", lambda x: w.ppermute(x, PAIRS), lambda x: lax.ppermute(x, "x", PAIRS), (3,)),
        ("broadcast", lambda x: w.broadcast(x, ROOT), lambda x: lax.all_gather(x, "x")[ROOT], (3,)),
        ("all_gather", lambda x: w.all_gather(x, axis=1), lambda x: lax.all_gather(x, "x", axis=1), (3,)),
        ("all_gather tiled", lambda x: w.all_gather(x, tiled=True), lambda x: lax.all_gather(x, "x", tiled=True), (3, 2)),
        ("psum_scatter", lambda x: w.psum_scatter(x, 1), lambda x: lax.psum_scatter(x, "x", scatter_dimension=1), (2, N)),
        ("psum_scatter tiled", lambda x: w.psum_scatter(x, tiled=True), lambda x: lax.psum_scatter(x, "x", tiled=True), (2 * N,)),
        ("all_to_all", lambda x: w.all_to_all(x, 0, 0), lambda x: lax.all_to_all(x, "x", 0, 0), (N, 2)),
        ("all_to_all tiled", lambda x: w.all_to_all(x, 1, 0, tiled=True), lambda x: lax.all_to_all(x, "x", 1, 0, tiled=True), (2, N)),
        ("barrier", w.barrier, lambda x: x, (3,)),
    ]


def batch(shape):
    return jnp.asarray(np.random.default_rng(3).standard_normal((N, *shape)))


def on_parts(fn, check):
    """fn of a device's part, without the dimension that is split."""
    return mapped(lambda x: lax_vary(fn(x[0]))[None], mesh(), check=check)


def lax_vary(x):
    return lax.pcast(x, "x", to="varying") if varying(lax.axis_index("x")) and "x" not in varying(x) else x


def derivatives():
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:
        for name, ours, own, shape in calls(w):
            x, dot = batch(shape), batch(shape)[::-1]
            for check in (True, False):
                got, want = ([], [])
                for fn, to in ((ours, got), (own, want)):
                    run = on_parts(fn, check)
                    y, y_dot = jax.jvp(run, (x,), (dot,))
                    scale = jnp.cos(jnp.arange(y.size)).reshape(y.shape)
                    to.extend([y, y_dot, jax.block_until_ready(jax.grad(lambda v: (run(v) * scale).sum())(x))])
                for a, b in zip(got, want):
                    np.testing.assert_allclose(a, b, rtol=1e-12, err_msg="%s, check_vma %s" % (name, check))


def derivatives_by_numbers():
    """Of what lax has wrong as well: an untiled all_to_all whose axes differ."""
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:
        for fn, shape in ((lambda x: w.all_to_all(x, 0, 1), (N, 2)), (lambda x: w.all_to_all(x, 1, 0), (2, N)), (w.psum, (2,))):
            run = on_parts(lambda x, fn=fn: jnp.sin(fn(x)), True)
            check_grads(run, (batch(shape),), order=2, modes=("fwd", "rev"))


def mapped_over():
    """vmap, beside the same call in a loop."""
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:
        for name, ours, _, shape in calls(w) + [("pmax", w.pmax, None, (3,)), ("pmin", w.pmin, None, (3,)), ("untiled", lambda x: w.all_to_all(x, 1, 0), None, (2, N))]:
            for at in range(len(shape) + 1):
                x = jnp.moveaxis(batch((4, *shape)), 1, at + 1)
                many = on_parts(jax.vmap(ours, in_axes=at, out_axes=0), True)(x)
                each = [on_parts(ours, True)(jnp.moveaxis(x, at + 1, 0)[i]) for i in range(4)] if at == 0 else each
                np.testing.assert_array_equal(many, jnp.stack(each, 1), err_msg="%s at %d" % (name, at))


def ragged_mapped_over():
    ones = jnp.ones((N, N), np.int32)
    offsets = jnp.tile(jnp.arange(N, dtype=np.int32), (N, 1))
    into = jnp.tile(jnp.arange(N, dtype=np.int32)[:, None], (1, N))
    x = jnp.arange(N * 2 * N, dtype=np.float32).reshape(N, 2, N)
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:

        def one(x, *tables):
            return jax.vmap(lambda v: w.ragged_all_to_all(v, jnp.zeros_like(v), *(t[0] for t in tables)))(x[0])[None]

        got = mapped(one, mesh(), (P("x"),) * 5)(x, offsets, ones, into, ones)
        np.testing.assert_array_equal(got, x.transpose(2, 1, 0))


def scans_and_loops():
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:

        def scan(x):
            return lax.scan(lambda c, _: (w.ppermute(c, RING) + 1, w.psum(c)), x, None, length=11)

        x = jnp.arange(float(N))
        y, sums = mapped(scan, mesh(), out=(P("x"), P()))(x)
        np.testing.assert_array_equal(y, jnp.roll(x, 11) + 11)
        np.testing.assert_array_equal(sums[:, 0], x.sum() + N * jnp.arange(11.0))

        def loop(x):
            return lax.while_loop(lambda c: w.pmax(c)[0] < 40, lambda c: w.ppermute(c, RING) * 2, x)

        most = N - 1
        while most < 40:
            most *= 2
        assert mapped(loop, mesh())(x).max() == most

        def branch(x):
            return lax.cond(w.psum(x)[0] > 0, lambda v: w.ppermute(v, RING), lambda v: v, x)

        np.testing.assert_array_equal(mapped(branch, mesh())(x), jnp.roll(x, 1))


def the_derivative_of_a_scan():
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:

        def loss(permute, x):
            def step(c, _):
                return jnp.tanh(permute(c) + c), c.sum()

            return mapped(lambda v: lax.scan(jax.checkpoint(step), v, None, length=7)[0], mesh())(x).sum()

        x = jnp.linspace(-1, 1, 2 * N)
        ours = jax.grad(partial(loss, lambda c: w.ppermute(c, RING)))(x)
        np.testing.assert_allclose(ours, jax.grad(partial(loss, lambda c: lax.ppermute(c, "x", RING)))(x), rtol=1e-12)


def patched():
    """A program of lax's, derivatives included: all of its collectives are ours."""
    columns = N // 2
    on, some = mesh((2, columns), ("y", "x")), [(i, i + 1) for i in range(min(2, columns - 1))]

    def body(x, p):
        a = lax.psum(x, "x") + lax.pmean(x, ("x", "y")) + lax.ppermute(x, "x", some) + lax.ppermute(x, ("y", "x"), RING)
        b = lax.all_gather(x, "x", axis=1, tiled=True)
        c = lax.all_to_all(b, "x", 1, 0, tiled=True)
        d = lax.psum_scatter(b, "y", scatter_dimension=1, tiled=True)
        return ((a * p).sum() + (b**2).sum() + (c**3).sum() + (d * d).sum() + lax.pmax(lax.stop_gradient(x), "x").sum())[None]

    def program():
        step = jax.value_and_grad(lambda x, p: jax.shard_map(body, mesh=on, in_specs=(P("y", "x"), P()), out_specs=P(("y", "x")))(x, p).sum(), (0, 1))
        return jax.jit(step)

    x, p = jnp.arange(8.0 * N).reshape(8, N) / 64, jnp.float64(1.5)
    want = jax.block_until_ready(program()(x, p))
    with spmt.jax.patch(timeout=TIMEOUT, graphs=True):
        run = program()
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-12), run(x, p), want)
        assert "spmt_all_reduce_graph" in run.lower(x, p).as_text()
    with spmt.jax.patch(timeout=TIMEOUT):
        run = program()
        got = run(x, p)
        text = run.lower(x, p).as_text()
    assert "_graph" not in text
    assert "spmt_all_reduce" in text and "spmt_permute" in text and "spmt_reduce_scatter" in text
    assert ("spmt_all_to_all" in text) == (columns > 1)  # of one device it is lax's
    for word in ("all_reduce", "all_gather", "all_to_all", "reduce_scatter", "collective_permute"):
        assert columns == 1 or "stablehlo.%s" % word not in text, word
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-12), got, want)
    assert "spmt_" not in program().lower(x, p).as_text()


def large_ones_stay_out_of_graphs():
    """What moves so many bytes a device that the library has copy engines do it; a sum has a kernel."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../src/kernels/coll/table.h")) as file:
        assert "#define COLL_ENGINE_LEAST (%dull << 20)" % (spmt.jax._ENGINE_LEAST >> 20) in file.read()
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT, graphs=True) as w:
        calls = {
            "permute": lambda v: w.ppermute(v, RING), "broadcast": lambda v: w.broadcast(v, 0), "all_to_all": lambda v: w.all_to_all(v, 0, 0, tiled=True),
            "all_gather": lambda v: w.all_gather(v, tiled=True), "all_reduce": w.psum,
        }
        for kind, call in calls.items():
            words = (spmt.jax._ENGINE_LEAST // 4) // (N if kind == "all_gather" else 1)
            least = -(-words // N) * N  # of a device, in as many parts as there are devices
            for less in (0, 1):
                one = jax.ShapeDtypeStruct((N * (least - less * N),), jnp.float32)
                text = jax.jit(jax.shard_map(call, mesh=mesh(), in_specs=P("x"), out_specs=P("x"), check_vma=False)).lower(one).as_text()
                assert ("spmt_%s_graph" % kind in text) == bool(less or kind == "all_reduce"), (kind, less)
                assert "spmt_%s" % kind in text


def patched_along_one_device():
    """XLA takes a call of one device out, which it could not if that were ours."""
    on = mesh((N, 1), ("x", "y"))
    with spmt.jax.patch(timeout=TIMEOUT):
        run = jax.jit(jax.shard_map(lambda v: lax.psum(lax.all_gather(v, "y", axis=0, tiled=True), "y"), mesh=on, in_specs=P(("x", "y")), out_specs=P("x")))
        text = run.lower(jnp.arange(2.0 * N)).as_text()
        np.testing.assert_array_equal(run(jnp.arange(2.0 * N)), np.arange(2.0 * N))
        assert "spmt_" not in text
        both = jax.jit(jax.shard_map(lambda v: lax.psum(v, ("x", "y")), mesh=on, in_specs=P(("x", "y")), out_specs=P()))
        assert "spmt_all_reduce" in both.lower(jnp.arange(2.0 * N)).as_text()


def patched_where_it_cannot():
    groups = [list(range(N // 2)), list(range(N // 2, N))]
    x = jnp.arange(float(N))
    with spmt.jax.patch(timeout=TIMEOUT):
        run = mapped(lambda v: lax.psum(v, "x", axis_index_groups=groups), mesh(), check=False)
        np.testing.assert_array_equal(run(x), np.repeat([sum(group) for group in groups], N // 2))


def patched_for_how_long():
    """A device may compute for minutes before its call, as with lax. What is no time is refused before anything is replaced."""
    for given, want in (({}, 600), ({"timeout": 0}, 600), ({"timeout": 2.5}, 2.5)):
        with spmt.jax.patch(**given):
            assert spmt.jax._patches[-1].timeout == want, given
    for wrong in (-1, float("nan")):
        try:
            with spmt.jax.patch(timeout=wrong):
                raise AssertionError("timeout %r was taken" % wrong)
        except ValueError as error:
            assert "timeout" in str(error)
    assert not spmt.jax._patches


def patched_until_a_failure():
    """A world that says at its end that a call had failed: the others end as well, and what was raised before counts."""
    worlds, failure, on = [], spmt.jax.World._failure, mesh((2, N // 2), ("y", "x"))

    def failed(world, id):
        worlds.append(world)
        return spmt.Error(spmt.ERR_TIMEOUT, "on purpose")

    for kind in (None, KeyError):
        worlds.clear()
        spmt.jax.World._failure = failed
        try:
            with spmt.jax.patch(timeout=TIMEOUT):
                assert mapped(lambda v: lax.psum(v, "x") + lax.psum(v, "y"), on, out=P(), check=False)(jnp.ones(N // 2))[0] == N // 2 + 2
                if kind:
                    raise kind
        except (kind or spmt.Error):
            pass
        else:
            raise AssertionError("nothing was raised")
        finally:
            spmt.jax.World._failure = failure
        assert len(worlds) == (2 if N > 2 else 1) and all(w._id is None for w in worlds)  # along one device there is none


def patched_while_others_compile():
    """What a thread compiles when the block has ended takes lax's own, and no world is left."""
    with spmt.jax.patch(timeout=TIMEOUT):
        late = spmt.jax._patches[-1]
        assert mapped(lambda v: lax.psum(v, "x"), mesh(), out=P())(jnp.arange(float(N)))[0] == N * (N - 1) / 2
    spmt.jax._patches.append(late)  # as another thread has read it
    try:
        assert mapped(lambda v: lax.psum(v, "x"), mesh(), out=P())(jnp.arange(float(N)))[0] == N * (N - 1) / 2
    finally:
        spmt.jax._patches.remove(late)
    assert not late.worlds and not spmt.jax._groups


def patched_by_a_module_loaded_anew():
    """As in a notebook: JAX's own are found behind the rules of the module before."""
    on, x = mesh((N, 1), ("x", "y")), jnp.arange(2.0 * N)

    def run():
        both = jax.jit(jax.shard_map(lambda v: lax.psum(v, "x") + lax.psum(v, "y"), mesh=on, in_specs=P("x"), out_specs=P("x")))
        np.testing.assert_array_equal(both(x), np.tile(x.reshape(N, 2).sum(0), N) + x)
        return both.lower(x).as_text()

    for _ in range(2):
        with spmt.jax.patch(timeout=TIMEOUT):
            assert "spmt_all_reduce" in run()
        importlib.reload(spmt.jax)
        jax.clear_caches()
        assert "spmt_" not in run()
        with spmt.jax.patch(timeout=TIMEOUT):
            assert "spmt_all_reduce" in run()
    assert "spmt_" not in run()


def patched_beside():
    """What lax takes as well: all of it, whoever does it, beside lax's own."""
    on, x = mesh((2, N // 2), ("y", "x")), jnp.arange(2.0 * N)

    def key(seed):
        mine = jax.random.key(seed[0].astype(jnp.int32))
        other = lax.all_to_all(jax.random.split(mine, N // 2), "x", 0, 0)
        return jax.random.key_data(other) + jax.random.key_data(lax.ppermute(mine, "y", [(0, 1), (1, 0)]))

    def nested(v):
        return lax.psum(v, "x") + jax.shard_map(lambda u: lax.pmax(u, "y"), in_specs=P(None), out_specs=P(None), axis_names={"y"}, check_vma=False)(v)

    def backwards(v):
        return lax.ppermute(v, "x", [(i, i - 1) for i in range(N // 2)])

    cases = [
        (key, None),
        (backwards, None),
        (lambda v: lax.pmax(v, ()) + lax.ppermute(v, (), [(0, 0)]), None),
        (lambda v: lax.psum(v, "x") + backwards(v), {"x"}),
        (nested, {"x"}),
    ]
    for fn, manual in cases:

        def run():
            names = {"axis_names": manual} if manual else {}
            spec = P("x") if manual else P(("y", "x"))
            return np.asarray(jax.jit(jax.shard_map(fn, mesh=on, in_specs=spec, out_specs=spec, check_vma=False, **names))(x))

        want = run()
        with spmt.jax.patch(timeout=TIMEOUT):
            np.testing.assert_array_equal(run(), want)
    with spmt.jax.world(on, "x", timeout=TIMEOUT) as w:
        run = mapped(lambda v: sum(w.ppermute(v, [(i, i - 1) for i in range(w.psum(1))]) for _ in range(w.psum(1))), on, P("x"), P("x"))
        np.testing.assert_array_equal(run(x), N // 2 * jnp.roll(x, -4))


if __name__ == "__main__":
    main([
        derivatives, derivatives_by_numbers, mapped_over, ragged_mapped_over, scans_and_loops, the_derivative_of_a_scan, patched,
        large_ones_stay_out_of_graphs, patched_along_one_device, patched_where_it_cannot, patched_for_how_long, patched_until_a_failure,
        patched_while_others_compile, patched_by_a_module_loaded_anew, patched_beside,
    ])
