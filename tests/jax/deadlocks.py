# SPDX-License-Identifier: MIT
"""What hangs collectives in XLA, a case each: few threads, calls in any order, devices that fail."""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np
from common import CPU, N, P, RING, TIMEOUT, main, mapped, mesh, raises
from jax import lax

import spmt.jax


def thrice(w):
    return lambda x: w.ppermute(w.ppermute(w.ppermute(x, RING) + 1, RING) + 1, RING)


def runs_far_ahead():
    """lax hangs here on two CPUs: the pool's threads are all blocked."""
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:
        run = mapped(thrice(w), mesh())
        for y in jax.block_until_ready([run(jnp.arange(2.0 * N)) for _ in range(200)]):
            np.testing.assert_array_equal(y, jnp.roll(jnp.arange(2.0 * N), 6) + 2)


def placed(x, on):
    """On the devices that the program takes it from: a launch then waits for no copy, and gets farther ahead."""
    return jax.device_put(x, jax.NamedSharding(on, P("x")))


def runs_far_ahead_of_placed_inputs():
    """XLA's pool hangs here when it has a thread a device and no more."""
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:
        run, x = mapped(thrice(w), mesh()), placed(jnp.arange(2.0 * N), mesh())
        for y in jax.block_until_ready([run(x) for _ in range(200)]):
            np.testing.assert_array_equal(y, jnp.roll(jnp.arange(2.0 * N), 6) + 2)


def runs_far_ahead_of_its_own_results():
    """As a training loop does that looks at the result at its end; by patch() as well."""

    def ahead(ppermute):
        run, y = mapped(lambda x: ppermute(x) + 1, mesh()), placed(jnp.arange(2.0 * N), mesh())
        for _ in range(200):
            y = run(y)
        np.testing.assert_array_equal(y, jnp.roll(jnp.arange(2.0 * N), 400) + 200)

    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:
        ahead(lambda x: w.ppermute(x, RING))
    with spmt.jax.patch(timeout=TIMEOUT):
        ahead(lambda x: lax.ppermute(x, "x", RING))


def imported_behind_the_devices():
    """Then XLA has made its threads, and a world says so, once; not where NPROC was large enough."""
    text = """
import os
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
import warnings, jax, numpy
on = jax.sharding.Mesh(numpy.array(jax.devices()), ("x",))
import spmt.jax
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    for _ in range(2):
        spmt.jax.world(on, "x").close()
print([str(w.message) for w in seen])
"""
    for nproc, words in (("", "8 threads for 8 CPU devices"), ("16", "[]")):
        env = dict(os.environ, JAX_PLATFORMS="cpu", XLA_FLAGS="--xla_force_host_platform_device_count=8")
        env.pop("NPROC", None)
        if nproc:
            env["NPROC"] = nproc
        out = subprocess.run([sys.executable, "-c", text], env=env, capture_output=True, text=True, timeout=TIMEOUT)
        assert words in out.stdout and out.stdout.count("spmt.jax:") == (not nproc), (nproc, out)


def large_runs_ahead():
    """The same of sums that the library's threads make."""
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:
        run = mapped(lambda x: w.psum(w.ppermute(x, RING)), mesh(), out=P())
        x = jnp.ones(N * 50_000, np.float32)
        assert all((y == N).all() for y in jax.block_until_ready([run(x) for _ in range(20)]))


def scans():
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:
        run = mapped(lambda x: lax.scan(lambda c, _: (thrice(w)(c), None), x, None, length=101)[0], mesh())
        for y in jax.block_until_ready([run(jnp.arange(2.0 * N)) for _ in range(5)]):
            np.testing.assert_array_equal(y, jnp.roll(jnp.arange(2.0 * N), 2 * 303 % (2 * N)) + 202)


def beside_collectives_of_lax():
    """Whoever completes a call goes on with a program that may block in one of lax's."""
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:

        def both(x):
            for _ in range(4):
                x = lax.ppermute(w.ppermute(x, RING), "x", RING) + 0 * w.psum(x) + 0 * lax.psum(x, "x")
            return x

        run = mapped(both, mesh())
        for _ in range(5):
            np.testing.assert_array_equal(jax.block_until_ready(run(jnp.arange(float(N)))), jnp.roll(jnp.arange(float(N)), 4 * 2))


def calls_that_nothing_orders():
    """Independent calls, which devices may come to in another order each."""
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:

        def many(x):
            return [w.ppermute(x + i, RING) if i % 2 else w.psum(x * i) for i in range(12)]

        run = mapped(many, mesh(), out=[P() if i % 2 == 0 else P("x") for i in range(12)])
        for outs in jax.block_until_ready([run(jnp.arange(float(N))) for _ in range(20)]):
            for i, y in enumerate(outs):
                np.testing.assert_array_equal(y, jnp.roll(jnp.arange(float(N)), 1) + i if i % 2 else jnp.full(1, N * (N - 1) / 2 * i))


def one_function_called_twice():
    """Compiled once, two calls in the program: each is a call of its own."""
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:
        inner = jax.jit(lambda x: w.ppermute(x, RING))
        run = mapped(lambda x: (inner(x), inner(x * 10), inner(inner(x))), mesh())
        for a, b, c in jax.block_until_ready([run(jnp.arange(float(N))) for _ in range(20)]):
            np.testing.assert_array_equal(a, jnp.roll(jnp.arange(float(N)), 1))
            np.testing.assert_array_equal(b, 10 * jnp.roll(jnp.arange(float(N)), 1))
            np.testing.assert_array_equal(c, jnp.roll(jnp.arange(float(N)), 2))


def threads_of_python():
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:
        run, wrong = mapped(thrice(w), mesh()), []

        def work():
            for _ in range(20):
                if not (jax.block_until_ready(run(jnp.arange(2.0 * N))) == jnp.roll(jnp.arange(2.0 * N), 6) + 2).all():
                    wrong.append(1)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


def threads_and_meshes_ahead():
    """Three threads, 40 executions ahead each, of all devices and of half of them."""
    if not CPU:
        return  # a GPU's stream has the calls of two threads in some order, and another GPU's in another
    half, wrong = jax.sharding.Mesh(np.array(jax.devices()[N // 2 : N]), ("x",)), []
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w, spmt.jax.world(half, "x", timeout=TIMEOUT) as h:

        def work(on, psum):
            n = on.size
            run, x = mapped(lambda v: psum(psum(v) + v) + v, on), placed(jnp.arange(float(n)), on)
            want = n * (n - 1) / 2 * (n + 1) + np.arange(n)
            for _ in range(3):
                if not all((y == want).all() for y in jax.block_until_ready([run(x) for _ in range(40)])):
                    wrong.append(n)

        threads = [threading.Thread(target=work, args=args) for args in ((mesh(), w.psum), (half, h.psum), (mesh(), w.psum))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def programs_of_other_devices():
    """A program of one device, and one of half the mesh, between those of all."""
    half = jax.sharding.Mesh(np.array(jax.devices()[N // 2 : N]), ("x",))
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w, spmt.jax.world(half, "x", timeout=TIMEOUT) as h:
        run, part = mapped(thrice(w), mesh()), mapped(h.psum, half, out=P())
        alone = jax.jit(lambda x: x @ x)
        outs = []
        for _ in range(10):
            outs.append((run(jnp.arange(2.0 * N)), part(jnp.arange(float(N // 2))), alone(jnp.ones((64, 64)))))
        for y, s, _ in jax.block_until_ready(outs):
            assert y[0] == jnp.roll(jnp.arange(2.0 * N), 6)[0] + 2 and s[0] == sum(range(N // 2))


def two_meetings_of_one_program():
    """Calls of two axes in one program: groups meet apart."""
    on = mesh((2, N // 2), ("y", "x"))
    with spmt.jax.world(on, "x", timeout=TIMEOUT) as wx, spmt.jax.world(on, "y", timeout=TIMEOUT) as wy:
        run = mapped(lambda v: wy.psum(wx.psum(v)) + wx.psum(wy.psum(v)), on, P("y", "x"), P())
        x = jnp.arange(4.0 * N).reshape(2, 2 * N)
        assert all(y.sum() == 2 * x.sum() for y in jax.block_until_ready([run(x) for _ in range(20)]))


def a_device_that_fails_early():
    """Its part of the program raises before the call: the others end at the deadline, and the next call works."""
    # On GPUs the world says at its end what no call was told.
    with contextlib.suppress() if CPU else contextlib.suppress(spmt.Error), spmt.jax.world(mesh(), "x", timeout=2) as w:

        def one(x):
            def fail(v):
                raise RuntimeError("on purpose")

            def check(v):
                return jax.pure_callback(fail, jax.ShapeDtypeStruct(v.shape, v.dtype), v)

            x = lax.cond(lax.axis_index("x") == N - 1, check, lambda v: v, x)
            return w.ppermute(x, RING)

        # JAX logs where the error came from, which looks in a log of tests like one that has failed.
        logging.getLogger("jax").setLevel(logging.CRITICAL)
        raises(lambda: mapped(one, mesh(), check=False)(jnp.arange(float(N))))
        logging.getLogger("jax").setLevel(logging.NOTSET)
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:
        np.testing.assert_array_equal(mapped(thrice(w), mesh())(jnp.arange(2.0 * N)), jnp.roll(jnp.arange(2.0 * N), 6) + 2)


def compiling_meets_nobody():
    """A program is compiled once, for all devices, and need never run."""
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:
        programs = [mapped(lambda x, k=k: w.ppermute(x + k, RING), mesh()).lower(jnp.arange(float(N))).compile() for k in range(3)]
        np.testing.assert_array_equal(programs[1](jnp.arange(float(N))), jnp.roll(jnp.arange(float(N)) + 1, 1))


def a_device_is_late_while_others_compile():
    """What waits for a device holds up nobody who needs all of one: to load a program, or to open and end another world."""
    if not CPU:
        return  # a kernel waits there, and whoever waits for all that a GPU does, as XLA's autotuning and the end of a world, waits for it
    go = threading.Event()
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:

        def one(x):
            def wait(v):
                go.wait(TIMEOUT)
                return np.asarray(v)

            def hold(v):
                return jax.pure_callback(wait, jax.ShapeDtypeStruct(v.shape, v.dtype), v)

            return w.psum(lax.cond(lax.axis_index("x") == N - 1, hold, lambda v: v, x))

        x = jnp.arange(float(N))
        run = mapped(one, mesh(), out=P(), check=False).lower(x).compile()
        got = []
        thread = threading.Thread(target=lambda: got.append(jax.block_until_ready(run(x))))
        thread.start()
        for k in range(2):
            jax.jit(lambda v, k=k: v @ v + k).lower(jnp.ones((32, 32))).compile()
            with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as other:
                mapped(other.psum, mesh(), out=P()).lower(x).compile()
                other._id, id = None, other._id  # close() would wait for the program that is held up
                assert other._library.spmt_xla_close(id) == 0
        go.set()
        thread.join()
        assert got and got[0][0] == N * (N - 1) / 2


def an_exception_waits_for_nobody():
    """Ctrl-C, say, in a block whose program waits for a late device."""
    if not CPU:
        return  # the end of a world waits for kernels there
    go, on, x = threading.Event(), mesh(), jnp.arange(float(N))

    def hold(v):
        def wait(u):
            go.wait(TIMEOUT)
            return np.asarray(u)

        return lax.cond(lax.axis_index("x") == N - 1, lambda u: jax.pure_callback(wait, jax.ShapeDtypeStruct(u.shape, u.dtype), u), lambda u: u, v)

    def world():
        with spmt.jax.world(on, "x", timeout=TIMEOUT) as w:
            outs.append(mapped(lambda v: w.psum(hold(v)), on, out=P(), check=False)(x))
            raise KeyboardInterrupt

    def patch():
        with spmt.jax.patch(timeout=TIMEOUT):
            outs.append(mapped(lambda v: lax.psum(hold(v), "x"), on, out=P(), check=False)(x))
            raise KeyboardInterrupt

    for block in (world, patch):
        outs, timer = [], threading.Timer(20, go.set)  # late, not absent
        timer.start()
        begin = time.monotonic()
        try:
            block()
        except KeyboardInterrupt:
            pass
        took, _ = time.monotonic() - begin, go.set()
        timer.cancel()
        raises(lambda: outs[0], "the world was closed while a call waited")
        go.clear()
        assert took < 10, "%s took %.1f s" % (block.__name__, took)


def an_end_that_is_interrupted():
    """Ends the world all the same."""
    w = spmt.jax.world(mesh(), "x", timeout=TIMEOUT)
    run, groups, settle = mapped(w.psum, mesh(), out=P()), len(spmt.jax._groups), spmt.jax._settle
    jax.block_until_ready(run(jnp.arange(float(N))))

    def interrupted():
        raise KeyboardInterrupt

    spmt.jax._settle = interrupted
    try:
        w.close()
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("nothing was raised")
    finally:
        spmt.jax._settle = settle
    raises(lambda: run(jnp.arange(float(N))), "was it closed?")
    assert len(spmt.jax._groups) == groups - 1


def slow_and_dropped(psum):
    """Launches a program that calls back for five seconds, and drops its result."""

    def one(x):
        y = psum(x)
        jax.debug.callback(lambda v: time.sleep(5), y[0])
        return y

    mapped(one, mesh(), check=False)(jnp.arange(float(N)))


def ends_at_ctrl_c(program, end):
    """Whether a signal ends `end` at once. Another thread sends it, as a person would."""
    sent = []

    def press():
        time.sleep(0.5)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    program()
    thread = threading.Thread(target=press)
    thread.start()
    try:
        end()
    except KeyboardInterrupt:
        took = time.monotonic() - sent[0]
    else:
        raise AssertionError("it ended of itself")
    thread.join()
    jax.effects_barrier()
    assert took < 1, "Ctrl-C took %.1f s" % took


def an_end_at_ctrl_c():
    """While a program calls back whose result nobody keeps."""
    if not CPU:
        return  # the end of a world waits for all that a GPU does
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's job in the background begins with it ignored
    groups = len(spmt.jax._groups)
    w = spmt.jax.world(mesh(), "x", timeout=TIMEOUT)
    ends_at_ctrl_c(lambda: slow_and_dropped(w.psum), w.close)
    assert len(spmt.jax._groups) == groups
    block = spmt.jax.patch(timeout=TIMEOUT)
    block.__enter__()
    ends_at_ctrl_c(lambda: slow_and_dropped(lambda x: lax.psum(x, "x")), lambda: block.__exit__(None, None, None))
    assert len(spmt.jax._groups) == groups


def a_failure_in_the_middle():
    if not CPU:
        return  # what is injected fails in rooms
    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:
        run = mapped(w.psum, mesh(), out=P())
        jax.block_until_ready(run(jnp.arange(float(N))))
        for _ in range(3):
            w._library.spmt_xla_inject(1)
            raises(lambda: run(jnp.arange(float(N))), "spmt all_reduce")
            assert run(jnp.arange(float(N)))[0] == N * (N - 1) / 2


def a_forked_child_has_no_world():
    """What was under way runs in the parent alone: the child's end of the world waits for none of it, and its calls say so."""

    def wait(x):
        time.sleep(2)
        return x

    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:
        shape = jax.ShapeDtypeStruct((1,), jnp.float64)
        y = mapped(lambda x: w.psum(jax.pure_callback(wait, shape, x)), mesh(), check=False)(jnp.arange(float(N)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # JAX warns of forks
            child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(20)
            status = 1
            try:
                raises(lambda: w.psum(1.0), "has forked this one")
                raises(w.check, "has forked this one")
                w.close()
                assert w._id is None
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert (y == N * (N - 1) / 2).all()


def results_that_nobody_keeps():
    """The end of a world waits for what their programs print or call back."""
    seen = []

    def program(psum):
        def one(x):
            x = lax.fori_loop(0, 300, lambda i, c: c @ c * 1e-3 + x[0] * 0, jnp.ones((300, 300)) + 0 * x[0])[:1, 0]
            y = psum(x)
            jax.debug.callback(seen.append, y[0])
            return y

        mapped(one, mesh(), check=False)(jnp.arange(float(N)))

    with spmt.jax.world(mesh(), "x", timeout=TIMEOUT) as w:
        program(w.psum)
    jax.effects_barrier()
    with spmt.jax.patch(timeout=TIMEOUT):
        program(lambda x: lax.psum(x, "x"))
    jax.effects_barrier()
    assert len(seen) == 2 * N, seen


def on_one_cpu():
    """All of a program's threads on one CPU."""
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, [min(cpus)])
    try:
        runs_far_ahead()
        runs_far_ahead_of_placed_inputs()
        scans()
    finally:
        os.sched_setaffinity(0, cpus)


if __name__ == "__main__":
    main([
        runs_far_ahead, runs_far_ahead_of_placed_inputs, runs_far_ahead_of_its_own_results, imported_behind_the_devices, large_runs_ahead, scans, beside_collectives_of_lax, calls_that_nothing_orders, one_function_called_twice, threads_of_python,
        threads_and_meshes_ahead, programs_of_other_devices, two_meetings_of_one_program, a_device_that_fails_early, a_failure_in_the_middle, compiling_meets_nobody,
        a_device_is_late_while_others_compile, results_that_nobody_keeps,
        an_exception_waits_for_nobody, an_end_that_is_interrupted, an_end_at_ctrl_c, a_forked_child_has_no_world, on_one_cpu,
    ])
