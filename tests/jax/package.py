# SPDX-License-Identifier: MIT
"""The package without JAX: worlds of threads, memory, calls, errors, Ctrl-C."""

import contextlib
import copy
import ctypes
import errno
import gc
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np

import spmt
import tap
from spmt._lib import call, lib

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's job in the background begins with it ignored

os.environ.setdefault("SPMT_BACKEND", "host")
HEAP = 4 << 20


def run(n, fn, *args):
    return spmt.run(n, fn, *args, heap_size=HEAP, timeout=120)


def raises(kind, call, words=""):
    try:
        call()
    except kind as error:
        assert words in str(error), "no %r in: %s" % (words, error)
        return
    raise AssertionError("no %s was raised" % kind.__name__)


def collectives():
    def rank(comm):
        n, r = comm.nranks, comm.rank
        total, part = np.empty(3), np.empty(2, np.int32)
        comm.all_reduce(total, np.full(3, r + 1.0))
        assert (total == n * (n + 1) / 2).all()
        comm.all_reduce(total, np.full(3, r + 1.0), op="max")
        assert (total == n).all()
        comm.all_reduce(total, np.full(3, r + 1.0), op="avg")
        assert (total == (n + 1) / 2).all()
        comm.all_reduce(total, np.full(3, r + 1.0), scale=2.0 + r)
        assert (total == sum((i + 1) * (i + 2) for i in range(n))).all()
        comm.reduce_scatter(part, np.arange(2 * n, dtype=np.int32))
        assert (part == np.arange(2 * r, 2 * r + 2) * n).all()
        comm.reduce_scatter(part, np.arange(2 * n, dtype=np.int32), scale=r)
        assert (part == np.arange(2 * r, 2 * r + 2) * (n * (n - 1) // 2)).all()
        for wrong, op in (([1, 2], "sum"), (1, "max")):
            try:
                comm.all_reduce(total, np.ones(3), op=op, scale=wrong)
                raise AssertionError("scale %r of op %s was taken" % (wrong, op))
            except ValueError:
                pass
        comm.reduce_scatter(part, np.arange(2 * n, dtype=np.int32))
        all_of = np.empty((n, 2), np.int32)
        comm.all_gather(all_of, part)
        assert (all_of.ravel() == np.arange(2 * n) * n).all()
        comm.all_to_all(all_of, np.arange(2 * n, dtype=np.int32) + 100 * r)
        assert (all_of[:, 0] == 100 * np.arange(n) + 2 * r).all()
        comm.broadcast(part, np.full(2, r, np.int32), root=1)
        assert (part == 1).all()
        comm.permute(part, np.full(2, r, np.int32), [(i + 1) % n for i in range(n)])
        assert (part == (r - 1) % n).all()
        comm.barrier()
        return r

    assert run(4, rank) == [0, 1, 2, 3]


def memory():
    def rank(comm):
        right = (comm.rank + 1) % comm.nranks
        block, word = comm.malloc((2, 4), np.float32), comm.malloc(1, np.uint64)
        assert (block.array == 0).all()
        comm.barrier()
        comm.put_signal(block, np.arange(4, dtype=np.float32) + comm.rank, word, 7, right, offset=4)
        assert comm.signal_wait(word, ">=", 7) == 7
        left = (comm.rank - 1) % comm.nranks
        assert (np.from_dlpack(block)[1] == np.arange(4) + left).all()
        comm.barrier()
        got = np.zeros(8, np.float32)
        comm.get(got, block, right)
        assert (got[4:] == np.arange(4) + comm.rank).all()
        comm.signal(word, 3, right, op="add")
        assert comm.signal_wait(word, "!=", 7) == 10
        comm.barrier()
        block.free()
        for wrong in (lambda: block.array, lambda: comm.put(word, np.zeros(2), right), lambda: comm.get(np.zeros(4)[::2], word, 0)):
            try:
                wrong()
            except ValueError:
                continue
            raise AssertionError("nothing was raised")

    run(3, rank)


def errors():
    def bad(comm):
        if comm.rank == 1:
            raise KeyError("on purpose")
        comm.barrier()

    try:
        run(3, bad)
    except KeyError:
        pass
    else:
        raise AssertionError("nothing was raised")
    with spmt.init(heap_size=HEAP) as comm:
        word = comm.malloc(1, np.uint64)
        try:
            comm.put(word, np.zeros(1, np.uint64), 5)
        except spmt.Error as error:
            assert error.code == -22 and "5" in str(error), error
        else:
            raise AssertionError("nothing was raised")
    try:
        comm.barrier()
    except ValueError:
        return
    raise AssertionError("nothing was raised")


def wrong_values():
    """Each was taken for something else, or read what was gone."""

    def rank(comm):
        ones, big = np.ones(2, np.float32), np.ones(2, ">f4")
        block, word = comm.malloc(4, np.float32), comm.malloc(1, np.uint64)
        wrong = [
            (ValueError, lambda: comm.all_reduce(big.copy(), big)),
            (ValueError, lambda: comm.put(block, ones, 1 << 32)),
            (ValueError, lambda: comm.broadcast(ones.copy(), ones, 1 << 32)),
            (ValueError, lambda: comm.permute(ones.copy(), ones, [1 << 32, 1])),
            (ValueError, lambda: comm.malloc((2, -3))),
            (ValueError, lambda: comm.malloc((1 << 40, 1 << 40))),
            (TypeError, lambda: comm.malloc(2.5)),
            (TypeError, lambda: comm.malloc((2.5, 1))),
            (ValueError, lambda: comm.signal(word, (1 << 64) + 5, 0)),
            (ValueError, lambda: comm.signal(word, -1, 0)),
            (TypeError, lambda: comm.signal(word, 1.5, 0)),
            (TypeError, lambda: comm.signal_wait(word, ">=", 0.0)),
            (TypeError, lambda: comm.signal_wait(block, ">=", 0)),  # of float32
            (TypeError, lambda: comm.put(block, ones, 0.0)),
            (TypeError, lambda: comm.broadcast(ones.copy(), ones, 0.0)),
            (TypeError, lambda: comm.malloc(2, object)),
            (ValueError, lambda: comm.signal_wait(word, "==", 1 << 64)),
            (ValueError, lambda: comm.abort(1 << 32)),
            (ValueError, lambda: comm.set_timeout(float("nan"))),
            (ValueError, lambda: comm.set_timeout(1e300)),
            (ValueError, lambda: comm.all_reduce(np.ones(2, np.int8), np.ones(2, np.int8), scale=2.5)),
            (TypeError, lambda: comm.put(block, np.ones(2, np.int8), 0)),
            (TypeError, lambda: comm.get(np.ones(2, np.int8), block, 0)),
            (TypeError, lambda: comm.put_signal(block, np.ones(2, np.int8), word, 1, 0)),
            (TypeError, lambda: comm.put(block, ones, 0, offset=1.0)),
            (TypeError, lambda: comm.get(ones.copy(), block, 0, offset=1.0)),
            (TypeError, lambda: block.copy_in(ones, 1.0)),
            (TypeError, lambda: comm.signal(word, 1, 0, index=0.0)),
            (TypeError, lambda: comm.put(ones.copy(), ones, 0)),
            (TypeError, lambda: comm.get(ones.copy(), ones, 0)),
            (TypeError, lambda: comm.put_signal(ones.copy(), ones, word, 1, 0)),
            (TypeError, lambda: comm.put_signal(block, ones, np.zeros(1, np.uint64), 1, 0)),
            (TypeError, lambda: comm.signal(np.zeros(1, np.uint64), 1, 0)),
            (TypeError, lambda: comm.signal_wait((word, 0), "==", 0)),
            (TypeError, lambda: comm.malloc(4, np.dtype((np.float32, (2, 2))))),
            (TypeError, lambda: copy.copy(comm)),
            (TypeError, lambda: copy.copy(block)),
        ]
        for kind, call in wrong:
            raises(kind, call)
        comm.barrier()
        comm.finalize()
        raises(ValueError, lambda: block.array)

    run(2, rank)
    raises(ValueError, lambda: spmt.run(0, rank))
    big = 1 << 32
    for wrong in ({"rank": big, "nranks": big + 1}, {"device": big}, {"heap_size": -1}, {"heap_size": (1 << 64) + HEAP}, {"timeout": float("nan")}):
        raises(ValueError, lambda: spmt.init(**wrong))
    # On the main thread, where another one makes the call.
    raises(ctypes.ArgumentError, lambda: call(None, lib.spmt_plan_check, 1.5))


def arrays_of_an_ended_comm():
    """A call on another comm took their memory, which was gone or another array's."""
    with spmt.init(heap_size=HEAP) as comm:
        ended = comm.malloc(4)
    with spmt.init(heap_size=HEAP) as comm:
        block, ones = comm.malloc(4), np.ones(4, np.float32)
        for call in (
            lambda: comm.put(block, ended, 0), lambda: comm.put(ended, ones, 0), lambda: comm.get(ended, block, 0), lambda: comm.get(ones, ended, 0),
            lambda: comm.all_reduce(ones, ended), lambda: comm.all_reduce(ended, ones), lambda: ended.copy_in(ones), ended.copy_out,
        ):
            raises(ValueError, call, "the array ended with its comm")
        assert (block.array == 0).all()


def views_by_numpy():
    """While one lives its array is not freed, nor the comm finalized: they read and wrote what was gone, or another array."""

    def rank(comm):
        block, other = comm.malloc((2, 3)), comm.malloc(2)
        view = block.array
        part = view[1:].T
        del view
        other.array[:] = comm.rank
        other.free()
        raises(BufferError, block.free, "the array cannot be freed: it is still seen by numpy (views of .array), 1 times")
        seen = np.from_dlpack(block)
        raises(BufferError, comm.finalize, "seen by numpy (views of .array), 1 times and by DLPack, 1 times")
        part[:], seen[0] = 5, 5
        comm.barrier()
        assert (block.copy_out() == 5).all()
        del part, seen
        cycle = [block.array]
        cycle.append(cycle)
        del cycle
        block.free()
        total = comm.malloc(4)
        comm.all_reduce(total.array, np.ones(4, np.float32), stream=0)  # which holds the view
        total.free()
        total = comm.malloc(4)
        comm.all_reduce(total.array, np.ones(4, np.float32), stream=0)
        comm.finalize()

    run(2, rank)


def views_while_another_thread_collects():
    """gc.collect() does nothing then, and a view in a cycle counted as seen."""
    begun = threading.Event()

    class Slow:
        def __init__(self):
            self.itself = self

        def __del__(self):
            begun.set()
            time.sleep(0.1)

    with spmt.init(heap_size=HEAP) as comm:
        block = comm.malloc(3)
        cycle = [block.array]
        gc.collect()  # old by then: the other thread looks at what is young
        cycle.append(cycle)
        del cycle
        gc.disable()
        try:
            Slow()
            other = threading.Thread(target=gc.collect, args=(0,))
            other.start()
            assert begun.wait(60)
            block.free()
            other.join()
        finally:
            gc.enable()


def views_that_are_returned():
    def rank(comm):
        view = comm.malloc(3).array
        return view if comm.rank else None

    for _ in range(5):
        raises(BufferError, lambda: run(2, rank), "its arrays are still seen by numpy")  # and not what the other rank has of the world's end


def views_behind_an_exception():
    """Memory stays while a traceback's frames see it, and the exception is what the rank raised. The next world ends what is left."""
    left = spmt._comm._left

    def rank(comm):
        view, seen = comm.malloc(4).array, np.from_dlpack(comm.malloc(4))
        view[:] = seen[:] = 7
        if comm.rank:
            raise KeyError("on purpose")
        comm.barrier()

    def bad():
        try:
            run(2, rank)
        except KeyError as error:
            trace = error.__traceback__
            while trace.tb_next:
                trace = trace.tb_next
            kept = trace.tb_frame.f_locals
            assert (kept["view"] == 7).all() and (kept["seen"] == 7).all()
            assert kept["comm"] in left
            run(1, lambda comm: None)
            assert kept["comm"] in left and (kept["view"] == 7).all()
            return
        raise AssertionError("nothing was raised")

    bad()
    run(1, lambda comm: None)
    assert not left, left


def views_at_the_end_of_python():
    begin = "import numpy as np, spmt\n"
    for code, status, said in (
        ("with spmt.init(heap_size=1 << 22) as comm:\n view = comm.malloc(4).array\n raise KeyError('on purpose')", 1, "KeyError: 'on purpose'"),
        ("comm = spmt.init(heap_size=1 << 22)\nview = comm.malloc(4).array", 0, ""),
        ("with spmt.init(heap_size=1 << 22) as comm:\n view = comm.malloc(4).array", 1, "BufferError: the comm cannot be finalized"),
    ):
        child = subprocess.run([sys.executable, "-c", begin + code], capture_output=True, text=True, timeout=60)
        last = child.stderr.splitlines()[-1:] or [""]
        assert child.returncode == status and last[0].startswith(said) and child.stderr.count("Error: ") == status, child


def deadlines():
    """One that is shorter than a millisecond is not the default."""
    with spmt.init(heap_size=HEAP) as comm:
        word = comm.malloc(np.int64(1), np.uint64)
        comm.set_timeout(float("inf"))
        comm.set_timeout(0.0004)
        began = time.monotonic()
        raises(spmt.Error, lambda: comm.signal_wait(word, "==", 1))
        assert time.monotonic() - began < 5


def a_free_that_fails():
    """Ranks that free different blocks have both of them still."""

    def rank(comm):
        one, other = comm.malloc(4), comm.malloc(4)
        raises(spmt.Error, (one if comm.rank else other).free)
        comm.put(one, np.ones(4, np.float32), comm.rank)
        other.free()
        one.free()

    run(2, rank)


def a_quiet_that_times_out():
    """What a stream still reads is not given back."""

    def rank(comm):
        block, word = comm.malloc(1000), comm.malloc(1, np.uint64)
        if comm.rank == 0:
            comm.signal_wait(word, "==", 1, stream=0)
            comm.put(block, np.full(1000, 7, np.float32), 1, stream=0)
            comm.set_timeout(0.1)
            raises(spmt.Error, comm.quiet)
            others = [np.full(1000, i, np.float32) for i in range(50)]
            comm.set_timeout(120)
            comm.signal(word, 1, 0)
            comm.quiet()
            assert not comm._held and len(others) == 50
        comm.barrier()
        return comm.rank == 0 or (block.array == 7).all()

    assert all(run(2, rank))


def a_finalize_that_is_refused():
    """While another thread is in a call the comm stays, and what its streams read; a block of ``with`` aborts the world then."""

    def in_malloc(comm, then):
        """What that of another thread raised, if anything."""
        begun, codes = threading.Event(), []

        def wait():
            begun.set()
            try:
                comm.malloc(1)
            except spmt.Error as error:
                codes.append(error.code)

        thread = threading.Thread(target=wait)
        thread.start()
        assert begun.wait(60)
        time.sleep(0.3)
        raises(spmt.Error, then, "another thread is in spmt_calloc")
        return thread, codes

    def again(comm):
        word, block, ones = comm.malloc(1, np.uint64), comm.malloc(1000), np.ones(1000, np.float32)
        if comm.rank == 0:
            comm.signal_wait(word, "==", 1, stream=0)
            comm.put(block, ones, 0, stream=0)
            thread, codes = in_malloc(comm, comm.finalize)
            assert comm._held[0]._owner is ones and comm.status() == 0
            for pe in 0, 1:
                comm.signal(word, 1, pe)
            thread.join()
            assert not codes
        else:
            comm.signal_wait(word, "==", 1)
            comm.malloc(1)
        comm.barrier()
        assert (block.copy_out() == 1 - comm.rank).all()
        comm.finalize()
        assert not comm._held

    def left(comm):
        word = comm.malloc(1, np.uint64)
        if comm.rank:
            comm.signal_wait(word, "==", 1)
        else:
            thread, codes = in_malloc(comm, lambda: comm.__exit__(None, None, None))
            thread.join()
            assert codes == [spmt.ERR_ABORTED]

    run(2, again)
    began = time.monotonic()
    raises(spmt.Error, lambda: run(2, left))
    assert time.monotonic() - began < 30
    run(1, lambda comm: None)
    assert not spmt._comm._left


def what_a_failed_call_has_queued():
    """A call without a stream whose own wait times out, and one in a stream that fails behind the collective."""

    def failing_destroy(*args):
        destroy(*args)
        return -errno.EIO

    def rank(comm):
        word, src, dst = comm.malloc(1, np.uint64), np.full(1000, 7, np.float32), np.zeros(1000, np.float32)
        comm.signal_wait(word, "==", 1, stream=0)
        comm.set_timeout(0.1)
        raises(spmt.Error, lambda: comm.all_reduce(dst, src))
        assert [one._owner is src or one._owner is dst for one in comm._held] == [True] * 2
        lib.spmt_op_destroy = failing_destroy
        raises(spmt.Error, lambda: comm.all_reduce(dst, src, scale=2, stream=0))
        lib.spmt_op_destroy = destroy
        assert len(comm._held) == 4
        raises(spmt.Error, lambda: comm.broadcast(dst, src, 5, stream=0), "5")
        assert len(comm._held) == 4
        comm.set_timeout(120)
        comm.signal(word, 1, 0)
        comm.quiet()
        assert not comm._held and (dst == 14).all()

    destroy = lib.spmt_op_destroy
    failing_destroy.argtypes = destroy.argtypes
    run(1, rank)


def what_a_broken_world_refuses():
    """Nothing of that is held: the first call that fails may have begun in a whole world, and those behind it have not."""

    def rank(comm, code):
        block, ones = comm.malloc(4), np.ones(4, np.float32)
        few = ones[:2 + comm.rank]
        comm.all_reduce(few.copy(), few, stream=0)
        while comm.status() == 0:
            time.sleep(0.001)
        assert comm.status() == spmt.ERR_MISMATCH and not comm._is_broken()
        raises(spmt.Error, comm.quiet, "differs")
        comm.barrier()
        comm.abort(code)
        for _ in range(20):
            for call in (
                lambda: comm.all_reduce(ones.copy(), ones), lambda: comm.put(block, ones, 0), lambda: comm.get(ones.copy(), block, 0),
                lambda: comm.put(block, ones, 0, stream=0), lambda: comm.all_reduce(ones.copy(), ones, stream=0),
            ):
                raises(spmt.Error, call)
        assert len(comm._held) <= 2, len(comm._held)

    for code in spmt.ERR_ABORTED, spmt.ERR_MISMATCH:
        run(2, rank, code)


def types_of_eight_bits():
    """Those of ml_dtypes, which comes with JAX."""
    import ml_dtypes

    def rank(comm):
        for dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
            total = np.empty(3, dtype)
            comm.all_reduce(total, np.array([1, 2, 0.5], dtype))
            assert (total.astype(np.float32) == [3, 6, 1.5]).all(), total
        raises(ValueError, lambda: comm.all_reduce(np.empty(2, ml_dtypes.float8_e4m3), np.ones(2, ml_dtypes.float8_e4m3)))

    run(3, rank)


def memory_of_a_gpu():
    class Array:
        def __dlpack__(self, **_):
            raise BufferError

        def __dlpack_device__(self):
            return 2, 0

    def rank(comm):
        try:
            comm.all_reduce(np.empty(2, np.float32), Array())
        except TypeError as error:
            assert "in memory of CUDA" in str(error), error
        else:
            raise AssertionError("nothing was raised")

    run(1, rank)


def the_first_who_raised():
    """The others' calls end as its world does, and they tell of that, sooner than it has left."""

    def slow(comm, code=spmt.ERR_ABORTED):
        abort(comm, code)
        time.sleep(0.3 if comm.rank == 1 else 0)

    def bad(comm):
        if comm.rank == 1:
            raise KeyError("on purpose")
        comm.barrier()

    abort, spmt.Comm.abort = spmt.Comm.abort, slow
    try:
        run(3, bad)
    except KeyError:
        return
    finally:
        spmt.Comm.abort = abort
    raise AssertionError("nothing was raised")


def counted_threads(most):
    """Begins at most that many, as where the system has no more; the list of those that were begun."""
    begun, start = [], threading.Thread.start

    def counting(thread):
        if len(begun) == most:
            raise RuntimeError("can't start new thread")
        begun.append(thread)
        start(thread)

    threading.Thread.start = counting
    try:
        yield begun
    finally:
        threading.Thread.start = start


def worlds_that_cannot_be():
    """All their ranks were begun, and those that were waited for the others, without a deadline."""
    threads = contextlib.contextmanager(counted_threads)
    raises(TypeError, lambda: spmt.run(2.5, str))
    raises(ValueError, lambda: spmt.run(1 << 40, str))
    raises(ValueError, lambda: spmt.run(2, str, backend="host\0zzz"), "NUL")
    with threads(1) as begun:  # init's own, on the main thread
        raises(spmt.Error, lambda: spmt.run(10**6, str), "at most 32768 ranks")
    with threads(-1) as begun:
        raises(spmt.Error, lambda: spmt.run(20000, str, backend="nosuch"), "nosuch")
        assert len(begun) < 10000, len(begun)
    for most in 0, 1, 3:
        with threads(most) as begun:
            raises(RuntimeError, lambda: spmt.run(4, str, heap_size=HEAP, timeout=-1), "can't start new thread")
        for thread in begun:
            thread.join(60)
            assert not thread.is_alive()


def other_libraries():
    env = dict(os.environ, SPMT_LIBRARY="libm.so.6")
    said = subprocess.run([sys.executable, "-c", "import spmt"], env=env, capture_output=True, text=True, check=False)
    assert "ImportError: libm.so.6 is no libspmt.so" in said.stderr, said


def interrupted(wait):
    """Ctrl-C while the main thread waits: the best of a few, as machines stand still."""
    best = 10.0
    for _ in range(5):
        sent = []

        def press():
            time.sleep(0.3)
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=press)
        thread.start()
        try:
            wait()
        except KeyboardInterrupt:
            best = min(best, time.monotonic() - sent[0])
        else:
            raise AssertionError("it ended of itself")
        thread.join()
        if best < 0.2:
            return
    raise AssertionError("Ctrl-C took %.3f s" % best)


def ctrl_c_in_run():
    def world():
        def both(comm):
            word = comm.malloc(1, np.uint64)
            comm.signal_wait(word, "==", 1)

        run(2, both)

    interrupted(world)


def ctrl_c_in_a_call():
    def wait():
        with spmt.init(heap_size=HEAP, timeout=-1) as comm:
            comm.signal_wait(comm.malloc(1, np.uint64), "==", 1)

    interrupted(wait)


def ctrl_c_in_a_collective():
    """Whose other rank has joined the world, and never comes."""

    def all_reduce(elements):
        uid, over = spmt.uid_create(), threading.Event()

        def absent():
            with contextlib.suppress(spmt.Error), spmt.init(1, 2, uid, heap_size=HEAP, timeout=-1):
                over.wait()

        peer = threading.Thread(target=absent)
        peer.start()
        try:
            with spmt.init(0, 2, uid, heap_size=HEAP, timeout=-1) as comm:
                comm.all_reduce(np.empty(elements, np.float32), np.ones(elements, np.float32))
        finally:
            over.set()
            peer.join()

    for elements in (4, 1 << 20):
        interrupted(lambda: all_reduce(elements))


def ctrl_c_in_init():
    """It went on in a thread: its rank was taken where that was tried again, and others who came waited for a comm that nobody had."""
    uid, init = spmt.uid_create(), lib.spmt_init

    def begun(*ranks):
        """Of a world of two, each on a thread of its own when the one before it waits; and what they fail with."""
        codes = []

        def join(rank):
            try:
                with spmt.init(rank, 2, uid, heap_size=HEAP, timeout=60) as comm:
                    comm.barrier()
            except spmt.Error as error:
                codes.append(error.code)

        threads = [threading.Thread(target=join, args=(rank,)) for rank in ranks]
        for thread in threads:
            thread.start()
            time.sleep(0.1)
        return threads, codes

    def told_late(attr, comm):
        code = init(attr, comm)
        time.sleep(0 if attr._obj.rank else 0.6)
        return code

    interrupted(lambda: spmt.init(0, 2, uid, heap_size=HEAP, timeout=-1))
    threads, codes = begun(0, 1)
    for thread in threads:
        thread.join()
    assert not codes, codes
    lib.spmt_init = told_late
    try:
        (peer,), codes = begun(1)
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        began = time.monotonic()
        raises(KeyboardInterrupt, lambda: spmt.init(0, 2, uid, heap_size=HEAP, timeout=60))
        peer.join()
        assert codes == [spmt.ERR_ABORTED] and time.monotonic() - began < 30, codes
    finally:
        lib.spmt_init = init


tap.main([
    collectives, memory, errors, wrong_values, arrays_of_an_ended_comm, views_by_numpy, views_while_another_thread_collects,
    views_that_are_returned, views_behind_an_exception,
    views_at_the_end_of_python, deadlines, a_free_that_fails, a_quiet_that_times_out, a_finalize_that_is_refused, what_a_failed_call_has_queued, what_a_broken_world_refuses,
    types_of_eight_bits, memory_of_a_gpu, the_first_who_raised,
    worlds_that_cannot_be, other_libraries,
    ctrl_c_in_run, ctrl_c_in_a_call, ctrl_c_in_a_collective, ctrl_c_in_init,
])
