# SPDX-License-Identifier: MIT
"""Arrays in GPUs' memory without any package for them: a producer of DLPack by ctypes, over the vendor's driver or a stand-in for it.

The first case is for ranks on the CPU; SPMT_BACKEND, cuda or hip, has the rest, on as many GPUs as there are, two at most."""

import ctypes
import gc
import os
import sys
import threading
import time

import numpy as np

import spmt
import tap
from spmt import _dlpack as dl

BACKEND = os.environ.get("SPMT_BACKEND", "host")
HEAP = 4 << 20
KIND = {"cuda": 2, "hip": 10}.get(BACKEND, 0)
DEFAULT = {"cuda": 1, "hip": 0}.get(BACKEND)  # the default stream, as DLPack numbers it


class Driver:
    """What a producer needs of the vendor's: memory, a stream, events."""

    NAMES = {
        "cuda": {
            "alloc": "cuMemAlloc_v2", "pinned": "cuMemHostAlloc", "copy": "cuMemcpyAsync", "stream": "cuStreamCreate",
            "event": "cuEventCreate", "record": "cuEventRecord", "wait": "cuStreamWaitEvent", "query": "cuStreamQuery", "call": "cuLaunchHostFunc",
        },
        "hip": {
            "alloc": "hipMalloc", "pinned": "hipHostMalloc", "copy": "hipMemcpyAsync", "stream": "hipStreamCreateWithFlags", "event": "hipEventCreateWithFlags",
            "record": "hipEventRecord", "wait": "hipStreamWaitEvent", "query": "hipStreamQuery", "call": "hipLaunchHostFunc",
        },
    }

    def __init__(self):
        hip = BACKEND == "hip"
        self.lib = ctypes.CDLL(os.environ.get("SPMT_HIP_LIB" if hip else "SPMT_CUDA_LIB") or ("libamdhip64.so.6" if hip else "libcuda.so.1"))
        self.contexts = {}

    def __call__(self, name, *args):
        code = getattr(self.lib, self.NAMES[BACKEND].get(name, name))(*args)
        assert code == 0, (name, code)

    def count(self):
        number = ctypes.c_int()
        if BACKEND == "cuda":
            self("cuInit", 0)
        self("cuDeviceGetCount" if BACKEND == "cuda" else "hipGetDeviceCount", ctypes.byref(number))
        return number.value

    def use(self, device):
        """On this thread."""
        if BACKEND == "hip":
            self("hipSetDevice", device)
            return
        if device not in self.contexts:
            context = ctypes.c_void_p()
            self("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
            self.contexts[device] = context
        self("cuCtxSetCurrent", self.contexts[device])

    def new(self, name, *args):
        made = ctypes.c_void_p()
        self(name, ctypes.byref(made), *args)
        return made

    def copy(self, dst, src, n, stream):
        self("copy", ctypes.c_void_p(dst), ctypes.c_void_p(src), ctypes.c_size_t(n), *([ctypes.c_int(4)] if BACKEND == "hip" else []), stream)


if KIND:
    driver = Driver()
    RANKS = min(2, driver.count())
WAIT = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: time.sleep(0.05))
DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Array:
    """Of one device, whose own stream fills it late, as a kernel that takes its time."""

    def __init__(self, device, values, versioned=True, read_only=False, offset=0, strides=None, device_said=None, kind=KIND, late=True, major=1):
        self.values, self.shape, self.dtype = np.ascontiguousarray(values), values.shape, values.dtype
        self.kind, self.device, self.said = kind, device, device if device_said is None else device_said
        self.versioned, self.read_only, self.offset, self.strides, self.major = versioned, read_only, offset, strides, major
        self.streams, self.deleted, self.structs = [], 0, []
        driver.use(device)
        self.ptr = driver.new("alloc", ctypes.c_size_t(max(self.values.nbytes, 1) + offset)).value
        self.stream = driver.new("stream", 1)
        if late:
            driver("call", self.stream, WAIT, None)
        driver.copy(self.ptr + offset, self.values.ctypes.data, self.values.nbytes, self.stream)

    def __dlpack_device__(self):
        return self.kind, self.said

    def __dlpack__(self, *, stream=None, **more):
        if "max_version" in more and not self.versioned:
            raise TypeError("unexpected keyword argument 'max_version'")
        assert stream is not None and (stream != 0 or BACKEND == "hip")
        self.streams.append(stream)
        driver.use(self.device)
        event = driver.new("event", 2)
        driver("record", event, self.stream)
        driver("wait", ctypes.c_void_p(stream), event, 0)
        form = dl._Versioned if self.versioned else dl._Managed
        managed, n = form(), len(self.shape)
        shape = (ctypes.c_int64 * n)(*self.shape)
        strides = (ctypes.c_int64 * n)(*self.strides) if self.strides else None
        code = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}.get(self.dtype.kind, 4)
        managed.tensor = dl._Tensor(
            self.ptr, dl._Device(self.kind, self.device), n, dl._Type(code, 8 * self.dtype.itemsize, 1),
            ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64)), ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64)) if strides else None, self.offset,
        )
        if self.versioned:
            managed.major, managed.flags = self.major, int(self.read_only)

        def delete(address):
            assert address == ctypes.addressof(managed)
            self.deleted += 1

        thunk = DELETER(delete)
        managed.deleter = ctypes.cast(thunk, ctypes.c_void_p).value
        self.structs.append((managed, shape, strides, thunk))
        return dl._capsule_new(ctypes.addressof(managed), b"dltensor_versioned" if self.versioned else b"dltensor", None)

    def now(self):
        """The values, once all that the device does with them is done."""
        driver.use(self.device)
        got = np.empty_like(self.values)
        driver.copy(got.ctypes.data, self.ptr + self.offset, got.nbytes, self.stream)
        while (code := getattr(driver.lib, driver.NAMES[BACKEND]["query"])(self.stream)) != 0:
            assert code == 600, code  # not ready, for either vendor
            time.sleep(0.001)
        return got


class Pinned(Array):
    """Of the CPU's memory, which the device reads, too. There is no stream to order it in."""

    def __init__(self, device, values):
        super().__init__(device, values, kind={2: 3, 10: 11}[KIND], late=False)
        self.ptr = driver.new("pinned", ctypes.c_size_t(self.values.nbytes), 0).value
        ctypes.memmove(self.ptr, self.values.ctypes.data, self.values.nbytes)
        self.taken = 0

    def __dlpack__(self, **keywords):
        assert "stream" not in keywords
        self.taken += 1
        return super().__dlpack__(stream=DEFAULT, **keywords)


class Again:
    """What another made of a symmetric array: its capsule, handed on."""

    def __init__(self, block, **keywords):
        self.block, self.keywords = block, keywords

    def __dlpack_device__(self):
        return self.block.__dlpack_device__()

    def __dlpack__(self, *, stream=None, max_version=None):
        return self.block.__dlpack__(stream=stream, **(self.keywords or {"max_version": max_version}))


def run(fn, *args):
    return spmt.run(RANKS, fn, *args, heap_size=HEAP, timeout=60)


def raises(kind, call, *words):
    try:
        call()
    except kind as error:
        missing = [word for word in words if word not in str(error)]
        assert not missing, "no %r in: %s" % (missing, error)
        return
    raise AssertionError("no %s was raised" % kind.__name__)


# ---- in the CPU's memory


def symmetric_arrays_of_the_cpu():
    """Given by DLPack, to numpy here; what holds them keeps them from their end."""

    def rank(comm):
        block = comm.malloc((2, 3), np.float64)
        assert block.__dlpack_device__() == (1, 0)
        seen = np.from_dlpack(block)
        assert seen.shape == (2, 3) and seen.ctypes.data == block.ptr
        raises(BufferError, block.free, "still seen by DLPack, 1 times")
        raises(BufferError, comm.finalize, "1 times")
        block.array[:] = 4
        assert (seen == 4).all()
        comm.barrier()
        part = seen[1]
        del seen
        raises(BufferError, block.free)
        del part
        for keywords in ({}, {"max_version": (1, 0)}):
            capsule = block.__dlpack__(**keywords)  # that nobody takes
            assert ("versioned" in repr(capsule)) == bool(keywords)
            raises(BufferError, block.free)
            del capsule
        raises(ValueError, lambda: block.__dlpack__(stream=1), "stream")
        raises(BufferError, lambda: block.__dlpack__(dl_device=(2, 0)), "not copied")
        raises(BufferError, comm.malloc(3, ">f4").__dlpack__, "no type")
        block.free()
        raises(ValueError, block.__dlpack__, "freed")

    spmt.run(2, rank, backend="host", heap_size=HEAP, timeout=60)

    class Elsewhere:
        def __init__(self, kind):
            self.kind = kind

        def __dlpack_device__(self):
            return self.kind, 3

        def __dlpack__(self, **_):
            raise AssertionError("it was asked for")

    def refused(comm):
        for kind, name in ((2, "CUDA device 3"), (10, "ROCm device 3"), (8, "Metal"), (77, "a device of kind 77")):
            for call in (lambda: comm.all_reduce(np.empty(2), Elsewhere(kind)), lambda: comm.all_reduce(Elsewhere(kind), np.empty(2))):
                raises(TypeError, call, "Elsewhere is in memory of " + name, "backend host")

    spmt.run(1, refused, backend="host", heap_size=HEAP, timeout=60)


def held_beyond_the_block():
    """A world that another package still looks into does not end silently: neither hangs nor is its memory gone."""

    def rank(comm):
        block = comm.malloc(3)
        comm.barrier()
        return np.from_dlpack(block) if comm.rank else None

    try:
        spmt.run(2, rank, backend="host", heap_size=HEAP, timeout=60)
    except BufferError as error:
        assert "its arrays are still seen" in str(error)
    else:
        raise AssertionError("nothing was raised")


def at_the_end_of_python():
    """An array that outlives what Python has of it is let go without Python."""
    import subprocess

    code = (
        "import sys, numpy as np, spmt\n"
        "comm = spmt.init(heap_size=1 << 22, backend='host')\n"
        "sys.modules['kept'] = np.from_dlpack(comm.malloc(3))\n"
        "from spmt import _dlpack\n"
        "import atexit; atexit.register(print, len(_dlpack._given))\n"
    )
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert child.returncode == 0 and child.stdout == "1\n" and not child.stderr, child


# ---- in a GPU's


def each_call():
    """Into and out of memory of both protocols' arrays, filled late by their own streams."""

    def rank(comm):
        n, r, d = comm.nranks, comm.rank, comm.device
        right, ramp = (r + 1) % n, np.arange(6.0)
        left = (r - 1) % n
        for versioned in (True, False):

            def array(values):
                return Array(d, values, versioned)

            src, dst = array(ramp + r), array(np.zeros(6))
            comm.all_reduce(dst, src)
            assert (dst.now() == n * ramp + sum(range(n))).all(), dst.now()
            assert src.streams == dst.streams == [DEFAULT] and src.deleted == dst.deleted == 1
            comm.all_reduce(dst, src, scale=2.0)
            assert (dst.now() == 2 * (n * ramp + sum(range(n)))).all()
            comm.all_reduce(dst, src, op="max")
            assert (dst.now() == ramp + n - 1).all()
            whole = array(np.zeros((n, 6)))
            comm.all_gather(whole, array(ramp + r))
            assert (whole.now() == ramp + np.arange(n)[:, None]).all()
            back = array(np.zeros((n, 6)))
            comm.all_to_all(back, whole)
            assert (back.now() == ramp + r).all()
            part = array(np.zeros(6))
            comm.reduce_scatter(part, whole)
            assert (part.now() == n * (ramp + r)).all()
            comm.broadcast(part, array(ramp + r), root=n - 1)
            assert (part.now() == ramp + n - 1).all()
            comm.permute(part, array(ramp + r), [(i + 1) % n for i in range(n)])
            assert (part.now() == ramp + left).all()

            block, word = comm.malloc(8, np.float64), comm.malloc(1, np.uint64)
            comm.put(block, array(ramp + r), right, offset=1)
            comm.barrier()
            assert (block.copy_out()[1:7] == ramp + left).all()
            comm.get(part, block, right, offset=1)
            assert (part.now() == ramp + r).all()
            comm.barrier()
            comm.put_signal(block, array(ramp - r), word, 5, right)
            assert comm.signal_wait(word, "==", 5) == 5
            assert (block.copy_out()[:6] == ramp - left).all()
            comm.barrier()
            half = np.arange(4, dtype=np.float16)
            comm.all_reduce(got := array(np.zeros(4, np.float16)), array(half))
            assert (got.now() == half * n).all()
            sent, came = Pinned(d, ramp + r), Pinned(d, np.zeros(6))
            comm.all_reduce(came, sent)
            assert (came.now() == n * ramp + sum(range(n))).all() and sent.taken == came.taken == sent.deleted == came.deleted == 1
            block.copy_in(np.full(3, 7.0), 5)
            assert (block.copy_out()[5:] == 7).all()
            block.free()

    run(rank)


def in_a_stream():
    """Calls return before their work is done; arrays are held until that is known."""

    def rank(comm):
        n, r, d = comm.nranks, comm.rank, comm.device
        right, left, ramp = (r + 1) % n, (r - 1) % n, np.arange(6.0)
        driver.use(d)
        stream = driver.new("stream", 1).value
        block, word = comm.malloc(6, np.float64), comm.malloc(1, np.uint64)
        for handle, said in ((stream, stream), (0, DEFAULT)):
            src, dst, got, total = (Array(d, v) for v in (ramp + r, np.zeros(6), np.zeros(6), np.zeros(6)))
            comm.put(block, src, right, stream=handle)
            comm.barrier(stream=handle)
            comm.get(got, block, right, stream=handle)
            comm.all_reduce(total, got, stream=handle)
            comm.put_signal(block, total, word, 3, right, stream=handle)
            comm.signal_wait(word, ">=", 3, stream=handle)
            comm.get(dst, block, r, stream=handle)
            comm.signal(word, 9, right, stream=handle)
            comm.quiet(stream=handle)
            assert [a.streams for a in (src, dst, got)] == [[said], [said], [said, said]]
            assert not src.deleted and not dst.deleted and not got.deleted
            comm.quiet()
            assert src.deleted == dst.deleted == 1 and got.deleted == total.deleted == 2
            assert (got.now() == ramp + r).all() and (total.now() == n * ramp + sum(range(n))).all(), (got.now(), total.now())
            assert (dst.now() == total.now()).all()
            comm.signal_wait(word, "==", 9)
            comm.barrier()
            word.copy_in(np.zeros(1, np.uint64))
            comm.barrier()
        wrong = Array(d, ramp)
        raises(ValueError, lambda: comm.put(block, wrong, right, stream=-1), "stream is -1")
        raises(spmt.Error, lambda: comm.put(block, wrong, 99, stream=stream), "99")
        assert wrong.deleted == len(wrong.streams)
        late = Array(d, ramp)  # of a call whose own wait for the default stream times out
        comm.signal_wait(word, "==", 1, stream=0)
        comm.set_timeout(0.1)
        raises(spmt.Error, lambda: comm.put(block, late, r))
        assert not late.deleted
        comm.set_timeout(60)
        comm.signal(word, 1, r)
        comm.quiet()
        assert late.deleted == 1
        held = Array(d, ramp)
        comm.put(block, held, right, stream=stream)
        comm.finalize()
        assert held.deleted == 1

    run(rank)


def what_is_refused():
    def rank(comm):
        d, ramp = comm.device, np.arange(6.0)
        good = Array(d, ramp, late=False)
        rows = Array(d, ramp.reshape(2, 3), strides=(3, 1), late=False)
        block = comm.malloc(6, np.float64)
        comm.put(block, rows, comm.rank)
        comm.put(block, Array(d, ramp.reshape(1, 6), strides=(1, 1), late=False), comm.rank)  # a stride of one entry counts nothing
        for array, kind, words in (
            (Array(d, ramp.reshape(2, 3), strides=(1, 2), late=False), ValueError, ["Array is not contiguous"]),
            (Array(d, ramp, major=2, late=False), BufferError, ["version 2 of DLPack"]),
            (Array(d, ramp.astype(np.complex64), late=False), TypeError, ["complex64"]),
            (Array(d, ramp.astype(np.float32), late=False), TypeError, ["src is of float", "float32", "float64"]),
            (Array(d, np.arange(5.0), late=False), ValueError, ["do not fit"]),
        ):
            raises(kind, lambda: comm.all_reduce(good, array), *words)
            assert array.deleted == len(array.streams) == 1, words
        fixed = Array(d, ramp, read_only=True, late=False)
        comm.put(block, fixed, comm.rank)
        raises(ValueError, lambda: comm.all_reduce(fixed, good), "Array is read-only")
        assert fixed.deleted == len(fixed.streams) == 2
        assert good.deleted == len(good.streams)
        other = Array(d, ramp, device_said=d + 1, late=False)
        name = "CUDA" if BACKEND == "cuda" else "ROCm"
        raises(ValueError, lambda: comm.all_reduce(good, other), "%s device %d" % (name, d + 1), "rank %d is on %s device %d" % (comm.rank, name, d))
        foreign = Array(d, ramp, kind=10 if KIND == 2 else 2, late=False)
        raises(TypeError, lambda: comm.all_reduce(good, foreign), "rank %d is on %s device %d" % (comm.rank, name, d))
        assert not other.streams and not foreign.streams
        raises(TypeError, lambda: comm.all_reduce(good, ramp), "ndarray is in memory of the CPU", "copy_in")
        raises(TypeError, lambda: comm.get(ramp, block, comm.rank), "ndarray is in memory of the CPU")
        comm.barrier()

    run(rank)


def symmetric_arrays_given():
    """By one protocol and the other, to calls of ours here, on the streams that DLPack has."""

    def rank(comm):
        n, r, d = comm.nranks, comm.rank, comm.device
        one, other = comm.malloc((2, 3), np.float32), comm.malloc(6, np.float32)
        assert one.__dlpack_device__() == (KIND, d)
        one.copy_in(np.arange(6, dtype=np.float32) + r)
        for keywords in ({}, {"copy": False}):
            comm.all_reduce(Again(other, **keywords), Again(one, **keywords))
            assert (other.copy_out() == n * np.arange(6) + sum(range(n))).all()
        comm.all_reduce(other, one)
        taken = dl.take(one, DEFAULT)
        assert (taken.shape, taken.ptr, taken.dtype, taken.device, taken.read_only) == ((2, 3), one.ptr, "float32", (KIND, d), False)
        raises(BufferError, one.free, "1 times")
        raises(BufferError, comm.finalize)
        threading.Thread(target=taken.release).start()
        while True:
            try:
                one.free()
                break
            except BufferError:
                time.sleep(0.001)
        for wrong in (0, -2) if BACKEND == "cuda" else (1, 2, -2):
            raises(ValueError, lambda: other.__dlpack__(stream=wrong), "stream")
        raises(BufferError, lambda: other.__dlpack__(dl_device=(1, 0)), "not copied")
        raises(BufferError, lambda: other.__dlpack__(copy=True), "not copied")
        raises(Exception, lambda: np.from_dlpack(other))  # it takes no memory of a GPU, and lets it go
        gc.collect()
        other.__dlpack__(stream=-1)
        other.free()

    run(rank)


def symmetric_arrays_given_early():
    """What is in another stream still comes before what the consumer puts into its own: the default one, where it names none."""

    def rank(comm):
        d = comm.device
        driver.use(d)
        stream, own = driver.new("stream", 1), driver.new("stream", 1)
        block, sevens, got = comm.malloc(6), Array(d, np.full(6, 7, np.float32), late=False), np.empty(6, np.float32)
        for asked, where in ((None, DEFAULT), (DEFAULT, DEFAULT), (own.value, own.value)):
            block.copy_in(np.zeros(6, np.float32))
            driver("call", stream, WAIT, None)
            comm.put(block, sevens, comm.rank, stream=stream.value)
            block.__dlpack__(stream=asked)
            driver.copy(got.ctypes.data, block.ptr, got.nbytes, ctypes.c_void_p(where))
            while getattr(driver.lib, driver.NAMES[BACKEND]["query"])(ctypes.c_void_p(where)):
                time.sleep(0.001)
            assert (got == 7).all(), (asked, got)
            comm.quiet()

    run(rank)


CASES = [symmetric_arrays_of_the_cpu, held_beyond_the_block, at_the_end_of_python]
if KIND:
    try:
        spmt.run(1, lambda comm: comm.barrier(stream=0), heap_size=HEAP)
    except spmt.Error as error:
        if "no image" not in str(error):
            raise
        print("1..1\nok 1 - all # SKIP the library was built without images for these GPUs")
        sys.exit()
tap.main([each_call, in_a_stream, what_is_refused, symmetric_arrays_given, symmetric_arrays_given_early] if KIND else CASES)
