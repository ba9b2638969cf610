# SPDX-License-Identifier: MIT
"""A small transformer, trained with data, pipeline and tensor parallelism, each on two devices: losses as with jax.lax's own, and what a step
takes. Eight devices have all three at once, four each two of them in turn, and two each one."""

import statistics
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from common import CPU, N, P, TIMEOUT, main, mesh, varying
from jax import lax

import spmt.jax

AXES = ("data", "pipe", "model")
LAYERS, WORDS = 2, 12


class Size(NamedTuple):
    steps: int = 50
    batch: int = 4
    length: int = 8
    width: int = 16
    heads: int = 4
    dtype: Any = np.float64
    rate: float = 0.1


def layouts():
    """Devices along each axis."""
    if N >= 8:
        return [(2, 2, 2)]
    if N >= 4:
        return [(1, 2, 2), (2, 1, 2), (2, 2, 1)]
    return [(1, 2, 1), (2, 1, 1), (1, 1, 2)]


class Lax:
    """The calls of an axis, as a world has them."""

    def __init__(self, axis):
        self.axis = axis

    def psum(self, x):
        return lax.psum(x, self.axis)

    def ppermute(self, x, perm):
        return lax.ppermute(x, self.axis, perm)


def parameters(size):
    rng, width = np.random.default_rng(7), size.width

    def normal(*shape):
        return jnp.asarray(rng.standard_normal(shape) * 1.2 / np.sqrt(width), size.dtype)

    # The first dimension is that of layers, which the stages of the pipeline share; then what tensor parallelism splits.
    stages = {
        "qkv": normal(LAYERS, width, 3, width), "proj": normal(LAYERS, width, width), "up": normal(LAYERS, width, 2 * width), "down": normal(LAYERS, 2 * width, width),
    }
    return {"stages": stages, "words": normal(WORDS, width), "places": normal(size.length, width)}


SPECS = {
    "stages": {"qkv": P("pipe", None, None, "model"), "proj": P("pipe", "model"), "up": P("pipe", None, "model"), "down": P("pipe", "model")},
    "words": P(), "places": P(),
}


def layer(p, x, model, heads):
    y = x / jnp.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)
    q, k, v = (jnp.einsum("btd,de->bte", y, p["qkv"][:, i]).reshape(*x.shape[:2], heads, -1) for i in range(3))
    score = jnp.einsum("bthe,bshe->bhts", q, k) / q.shape[-1] ** 0.5 + jnp.where(jnp.tri(x.shape[1], dtype=bool), 0, -1e9).astype(x.dtype)
    y = jnp.einsum("bhts,bshe->bthe", jax.nn.softmax(score), v).reshape(*x.shape[:2], -1)
    x = x + model.psum(y @ p["proj"])
    y = x / jnp.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)
    return x + model.psum(jax.nn.gelu(y @ p["up"]) @ p["down"])


def loss_of(p, text, size, on, data, pipe, model):
    """Two half batches through the stages, one a step behind the other."""
    stages, heads = on.shape["pipe"], size.heads // on.shape["model"]
    stage = lax.axis_index("pipe")
    halves = p["words"][text].reshape(2, -1, size.length, size.width) + p["places"]
    came, total = jnp.zeros_like(halves[0]), jnp.zeros((), size.dtype)
    known = varying(came)
    if known is not None and hasattr(lax, "pcast"):
        came = lax.pcast(came, tuple(a for a in ("data", "pipe") if a not in known), to="varying")
    for step in range(stages + 1):
        y = jnp.where(stage == 0, halves[min(step, 1)], came)
        for mine in range(LAYERS // stages):
            y = layer(jax.tree.map(lambda a: a[mine], p["stages"]), y, model, heads)
        if step >= stages - 1:
            target = text.reshape(2, -1, size.length)[step - stages + 1]
            picked = jnp.take_along_axis(jax.nn.log_softmax(y @ p["words"].T)[:, :-1], target[:, 1:, None], 2)
            total = total - jnp.where(stage == stages - 1, picked.mean(), 0.0) / 2
        came = pipe.ppermute(y, [(i, (i + 1) % stages) for i in range(stages)])
    return pipe.psum(data.psum(total)) / on.shape["data"]


def train(size, on, *calls):
    """The losses, and the seconds of a step."""

    def step(p, text):
        loss, slopes = jax.value_and_grad(loss_of)(p, text, size, on, *calls)
        return jax.tree.map(lambda a, s: a - size.rate * s, p, slopes), loss

    run = jax.jit(jax.shard_map(step, mesh=on, in_specs=(SPECS, P("data")), out_specs=(SPECS, P())))
    place = lambda specs: jax.tree.map(lambda spec: jax.NamedSharding(on, spec), specs, is_leaf=lambda s: isinstance(s, P))  # noqa: E731
    p = jax.device_put(parameters(size), place(SPECS))
    rng, losses, took = np.random.default_rng(8), [], []
    text = jax.device_put((rng.integers(0, WORDS, (size.batch, 1)) + np.arange(size.length)) % WORDS, place(P("data")))
    for _ in range(size.steps):
        begin = time.perf_counter()
        p, loss = run(p, text)
        losses.append(float(loss))  # lax's collectives hang when they run ahead
        took.append(time.perf_counter() - begin)
    return losses, statistics.median(took[1:])  # the first is compiled


def beside_lax(size, tolerance):
    """In each layout: with worlds of ours, with what patch() makes of lax's calls, and with lax's own."""
    for shape in layouts():
        on = mesh(shape, AXES)
        own = [Lax(axis) for axis in AXES]
        want, lax_took = train(size, on, *own)
        worlds = [spmt.jax.world(on, axis, timeout=TIMEOUT) for axis in AXES]
        got, took = train(size, on, *worlds)
        for w in worlds:
            w.close()
        with spmt.jax.patch(timeout=TIMEOUT):
            patched, patch_took = train(size, on, *own)
        again, lax_again = train(size, on, *own)
        print(
            "# %s, width %d, %d x %d words, %s: a step takes %.2f ms, %.2f within patch(), and %.2f and %.2f with lax's"
            % (
                ", ".join("%s %d" % pair for pair in zip(AXES, shape)), size.width, size.batch, size.length, np.dtype(size.dtype).name,
                took * 1e3, patch_took * 1e3, lax_took * 1e3, lax_again * 1e3,
            ),
            flush=True,
        )
        assert np.isfinite(want).all() and want[-1] < want[0] / (2 if size.steps >= 50 else 1), want
        for losses in (got, patched, again):
            np.testing.assert_allclose(losses, want, rtol=tolerance)


def losses():
    beside_lax(Size(), 1e-9)


def larger():
    """In f32, on GPUs as large as a step that takes milliseconds."""
    beside_lax(Size(6, 8, 16, 64, 8, np.float32, 0.01) if CPU else Size(20, 16, 512, 1024, 16, np.float32, 1e-3), 1e-3)


if __name__ == "__main__":
    main([losses, larger])
