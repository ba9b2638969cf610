# SPDX-License-Identifier: MIT
"""A small transformer, trained with tensor, data and pipeline parallelism on 2 x 2 x 2 devices: losses as with jax.lax's own.
Fewer devices have a pipeline of two, and from four on tensor parallelism."""

import jax
import jax.numpy as jnp
import numpy as np
from common import N, P, TIMEOUT, main, mesh
from jax import lax

import spmt.jax

STEPS, BATCH, LENGTH, WIDTH, HEADS, WORDS, RATE = 50, 4, 8, 16, 4, 12, 0.1
DATA, MODEL = 2 if N == 8 else 1, 2 if N >= 4 else 1
HALF = BATCH // DATA // 2  # of what a device has of a batch


class Lax:
    """The calls of an axis, as a world has them."""

    def __init__(self, axis):
        self.axis = axis

    def psum(self, x):
        return lax.psum(x, self.axis)

    def ppermute(self, x, perm):
        return lax.ppermute(x, self.axis, perm)


def parameters():
    rng = np.random.default_rng(7)

    def normal(*shape):
        return jnp.asarray(rng.standard_normal(shape) * 0.3)

    # The first dimension is the stage of the pipeline, a layer each; then what tensor parallelism splits.
    stages = {"qkv": normal(2, WIDTH, 3, WIDTH), "proj": normal(2, WIDTH, WIDTH), "up": normal(2, WIDTH, 2 * WIDTH), "down": normal(2, 2 * WIDTH, WIDTH)}
    return {"stages": stages, "words": normal(WORDS, WIDTH), "places": normal(LENGTH, WIDTH)}


SPECS = {
    "stages": {"qkv": P("pipe", None, None, "model"), "proj": P("pipe", "model"), "up": P("pipe", None, "model"), "down": P("pipe", "model")},
    "words": P(), "places": P(),
}


def layer(p, x, model):
    heads = HEADS // MODEL
    y = x / jnp.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)
    q, k, v = (jnp.einsum("btd,de->bte", y, p["qkv"][:, i]).reshape(*x.shape[:2], heads, -1) for i in range(3))
    score = jnp.einsum("bthe,bshe->bhts", q, k) / 2 + jnp.where(jnp.tri(LENGTH, dtype=bool), 0, -1e9)
    y = jnp.einsum("bhts,bshe->bthe", jax.nn.softmax(score), v).reshape(*x.shape[:2], -1)
    x = x + model.psum(y @ p["proj"])
    y = x / jnp.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)
    return x + model.psum(jax.nn.gelu(y @ p["up"]) @ p["down"])


def loss_of(p, text, data, model, pipe):
    """Two half batches through two stages, one a step behind the other."""
    stage = lax.axis_index("pipe")
    mine = jax.tree.map(lambda a: a[0], p["stages"])
    halves = p["words"][text].reshape(2, HALF, LENGTH, WIDTH) + p["places"]
    came, total = jnp.zeros_like(halves[0]), 0.0
    came = lax.pcast(came, tuple(a for a in ("data", "pipe") if a not in jax.typeof(came).mat.varying), to="varying") if hasattr(lax, "pcast") else came
    for step in range(3):
        y = layer(mine, jnp.where(stage == 0, halves[min(step, 1)], came), model)
        if step:
            target = text.reshape(2, HALF, LENGTH)[step - 1]
            picked = jnp.take_along_axis(jax.nn.log_softmax(y @ p["words"].T)[:, :-1], target[:, 1:, None], 2)
            total = total - jnp.where(stage == 1, picked.mean(), 0.0) / 2
        came = pipe.ppermute(y, [(0, 1), (1, 0)])
    return pipe.psum(data.psum(total)) / DATA


def train(on, data, model, pipe):
    def step(p, text):
        loss, slopes = jax.value_and_grad(loss_of)(p, text, data, model, pipe)
        return jax.tree.map(lambda a, s: a - RATE * s, p, slopes), loss

    run = jax.jit(jax.shard_map(step, mesh=on, in_specs=(SPECS, P("data")), out_specs=(SPECS, P())))
    p, losses = parameters(), []
    rng = np.random.default_rng(8)
    text = jnp.asarray((rng.integers(0, WORDS, (BATCH, 1)) + np.arange(LENGTH)) % WORDS)
    for _ in range(STEPS):
        p, loss = run(p, text)
        losses.append(float(loss))  # lax's collectives hang when they run ahead
    return losses


def losses():
    on = mesh((DATA, 2, MODEL), ("data", "pipe", "model"))
    want = train(on, Lax("data"), Lax("model"), Lax("pipe"))
    assert want[-1] < want[0] / 2, want
    worlds = [spmt.jax.world(on, axis, timeout=TIMEOUT) for axis in ("data", "model", "pipe")]
    np.testing.assert_allclose(train(on, *worlds), want, rtol=1e-9)
    for w in worlds:
        w.close()
    with spmt.jax.patch(timeout=TIMEOUT):
        np.testing.assert_allclose(train(on, Lax("data"), Lax("model"), Lax("pipe")), want, rtol=1e-9)


if __name__ == "__main__":
    main([losses])
