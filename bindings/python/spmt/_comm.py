# SPDX-License-Identifier: MIT
"""Ranks, symmetric memory and calls between them."""

from __future__ import annotations

import ctypes
import math
import threading
from types import TracebackType
from typing import Any, Callable, Sequence, TypeVar

import numpy as np

from ._lib import ERR_ABORTED, ERR_UNSUPPORTED, Attr, Error, Uid, call, check, failure, lib

T = TypeVar("T")

_TYPES = {
    name: number
    for number, name in enumerate(
        # those that numpy lacks are of ml_dtypes
        "int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32 float64 float8_e4m3fn float8_e5m2".split()
    )
}
_OPS = {name: number for number, name in enumerate("sum prod min max and or xor".split())}
_COMPARES = {name: number for number, name in enumerate("== != > >= < <=".split())}
_SIGNALS = {"set": 0, "add": 1}
_CAP_HOST_ACCESS = 6
_DLPACK_LOADABLE = (1, 3, 11, 13)  # of the CPU, pinned for CUDA or ROCm, managed by CUDA
_DLPACK_NAMES = {2: "CUDA", 4: "OpenCL", 7: "Vulkan", 8: "Metal", 10: "ROCm", 14: "oneAPI"}
_SCALAR_HOST = 0


def _number(names: dict[str, int], name: str, what: str) -> int:
    if name not in names:
        raise ValueError("%s is %r, not one of %s" % (what, name, ", ".join(names)))
    return names[name]


def _fits(value: int) -> None:
    """ctypes would cut it."""
    if not -(1 << 31) <= value < 1 << 31:
        raise ValueError("%d is beyond any number of a rank" % value)


def _type(dtype: np.dtype[Any]) -> int:
    """The library's number of a type of numpy's, whose name does not tell the order of bytes."""
    if not dtype.isnative:
        raise ValueError("%s is not in this machine's order of bytes" % dtype.str)
    return _number(_TYPES, dtype.name, "the type")


def _same_type(src: np.dtype[Any], dst: np.dtype[Any]) -> None:
    if src != dst:
        raise TypeError("src is of %s and dst of %s" % (src, dst))


def _host_array(value: Any, writable: bool = False) -> np.ndarray[Any, Any]:
    """A numpy array over the memory of a buffer; nothing is copied where it is written to."""
    if isinstance(value, Symmetric):
        return value.array
    if not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__"):
        kind = int(value.__dlpack_device__()[0])
        if kind not in _DLPACK_LOADABLE:
            where = _DLPACK_NAMES.get(kind, "an accelerator")
            raise TypeError("%s is in memory of %s: arrays have to be in memory that the CPU loads from" % (type(value).__name__, where))
        value = np.from_dlpack(value)
    array = value if writable else np.asarray(value)
    if not isinstance(array, np.ndarray):
        raise TypeError("an array to write to has to be one of numpy, of DLPack or symmetric, not %s" % type(value).__name__)
    if writable and not (array.flags.writeable and array.flags.c_contiguous):
        raise ValueError("an array to write to has to be writable and contiguous")
    return np.ascontiguousarray(array) if not array.flags.c_contiguous else array


class Symmetric:
    """An array of which every rank has a copy, reached by ``put`` and ``get``. Made by ``Comm.malloc``.

    ``array`` is this rank's own copy as numpy sees it, where the CPU can load from it.
    """

    def __init__(self, comm: Comm, ptr: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.comm, self.ptr, self.shape, self.dtype = comm, ptr, shape, dtype
        self.size = math.prod(shape)
        self.nbytes = self.size * dtype.itemsize

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """This rank's copy. Valid until ``free``, or until the comm is finalized."""
        if not self.ptr:
            raise ValueError("the array was freed")
        if self.comm._handle is None:
            raise ValueError("the array ended with its comm, which is finalized")
        if not self.comm._host_access:
            raise Error(ERR_UNSUPPORTED, "the CPU cannot load from memory of backend %s" % self.comm.backend)
        memory = (ctypes.c_ubyte * self.nbytes).from_address(self.ptr)
        return np.frombuffer(memory, dtype=self.dtype, count=self.size).reshape(self.shape)

    def __dlpack__(self, **keywords: Any) -> Any:
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def free(self) -> None:
        """Collective, as ``malloc``."""
        ptr, self.ptr = self.ptr, 0
        call(self.comm._handle, lib.spmt_free, self.comm._handle, ptr)

    def _at(self, offset: int, nbytes: int) -> int:
        start = offset * self.dtype.itemsize
        if not self.ptr or start < 0 or start + nbytes > self.nbytes:
            raise ValueError("%d bytes from element %d are not inside an array of %d bytes" % (nbytes, offset, self.nbytes))
        return self.ptr + start


class Comm:
    """One rank of a world. Calls come from any thread, one at a time; collectives return when they are done."""

    def __init__(self, handle: int) -> None:
        self._handle: int | None = handle
        self._life = threading.Lock()  # guards _handle: who aborts does not name a comm that another thread finalizes
        self.rank = check(lib.spmt_rank(handle))
        self.nranks = check(lib.spmt_nranks(handle))
        self.device = check(lib.spmt_device(handle))
        self.backend = (lib.spmt_backend(handle) or b"").decode()
        value = ctypes.c_int64()
        self._host_access = lib.spmt_query(handle, _CAP_HOST_ACCESS, ctypes.byref(value)) == 0 and value.value == 1

    def __repr__(self) -> str:
        return "<spmt.Comm rank %d of %d on %s %d>" % (self.rank, self.nranks, self.backend, self.device)

    def __enter__(self) -> Comm:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None and self._handle is not None:
            self.abort()
            handle = self._take()
            if handle is not None:
                lib.spmt_finalize(handle)
        else:
            self.finalize()

    def _call(self, function: Callable[..., int], *args: Any) -> None:
        if self._handle is None:
            raise ValueError("the comm is finalized")
        for kind, value in zip(function.argtypes[1:], args):
            if kind is ctypes.c_int:
                _fits(value)
        call(self._handle, function, self._handle, *args)

    # life

    def finalize(self) -> None:
        """Leaves the world: collective. A second time is a no-op."""
        handle = self._take()
        if handle is not None:
            call(handle, lib.spmt_finalize, handle)

    def _take(self) -> int | None:
        with self._life:
            handle, self._handle = self._handle, None
        return handle

    def abort(self, code: int = ERR_ABORTED) -> None:
        """Breaks the world at once: every wait in it ends. Any thread."""
        with self._life:
            if self._handle is not None:
                check(lib.spmt_abort(self._handle, code))

    def status(self) -> int:
        """0, or the code of what broke the world."""
        return int(lib.spmt_status(self._handle)) if self._handle is not None else -9

    def set_timeout(self, seconds: float) -> None:
        """The deadline of this rank's waits from here on; below 0: none."""
        self._call(lib.spmt_set_timeout, int(seconds * 1000) if seconds >= 0 else -1)

    # memory

    def malloc(self, shape: int | Sequence[int], dtype: Any = np.float32) -> Symmetric:
        """Zeros of which every rank has a copy. Collective: the same arguments on all ranks."""
        dims = (shape,) if isinstance(shape, int) else tuple(int(n) for n in shape)
        kind = np.dtype(dtype)
        ptr = ctypes.c_void_p()
        if min(dims, default=0) < 0 or math.prod(dims) * kind.itemsize >= 1 << 63:
            raise ValueError("shape %r of %s" % (dims, kind))
        self._call(lib.spmt_calloc, max(math.prod(dims), 1), kind.itemsize, ctypes.byref(ptr))
        return Symmetric(self, ptr.value or 0, dims, kind)

    def put(self, dst: Symmetric, src: Any, pe: int, offset: int = 0) -> None:
        """Writes an array, of dst's type, to rank pe's copy of dst, from element offset on."""
        data = _host_array(src)
        at = dst._at(offset, data.nbytes)
        _same_type(data.dtype, dst.dtype)
        self._call(lib.spmt_put, at, data.ctypes.data, data.nbytes, pe)

    def get(self, dst: Any, src: Symmetric, pe: int, offset: int = 0) -> None:
        """Reads from rank pe's copy of src, from element offset on, as much as dst holds."""
        data = _host_array(dst, writable=True)
        at = src._at(offset, data.nbytes)
        _same_type(src.dtype, data.dtype)
        self._call(lib.spmt_get, data.ctypes.data, at, data.nbytes, pe)

    def put_signal(
        self, dst: Symmetric, src: Any, signal: Symmetric, value: int, pe: int, op: str = "set", offset: int = 0, index: int = 0
    ) -> None:
        """put, and then signal: who sees the signal sees the data."""
        data = _host_array(src)
        at = dst._at(offset, data.nbytes)
        _same_type(data.dtype, dst.dtype)
        self._call(
            lib.spmt_put_signal, at, data.ctypes.data, data.nbytes, signal._at(index, 8), value,
            _number(_SIGNALS, op, "op"), pe,
        )

    def signal(self, signal: Symmetric, value: int, pe: int, op: str = "set", index: int = 0) -> None:
        """Sets the word of rank pe, or adds to it. The array is of uint64."""
        self._call(lib.spmt_signal, signal._at(index, 8), value, _number(_SIGNALS, op, "op"), pe)

    def signal_wait(self, signal: Symmetric, compare: str, value: int, index: int = 0) -> int:
        """Waits until this rank's word compares true (``"=="``, ``">="``, ..); what it was then."""
        seen = ctypes.c_uint64()
        self._call(lib.spmt_signal_wait, signal._at(index, 8), _number(_COMPARES, compare, "compare"), value, ctypes.byref(seen))
        return seen.value

    def fence(self) -> None:
        """Orders what was issued before it, to each rank, before what comes later."""
        self._call(lib.spmt_fence)

    def quiet(self) -> None:
        """Waits until all that this comm has issued is complete."""
        self._call(lib.spmt_quiet)

    def barrier(self) -> None:
        """Waits until all ranks have called."""
        self._call(lib.spmt_barrier)

    # collectives

    def _collective(self, function: Callable[..., int], dst: Any, src: Any, out: int, into: int, *more: Any) -> None:
        """out and into: how many times the library's count src and dst are."""
        given, taken = _host_array(src), _host_array(dst, writable=True)
        _same_type(given.dtype, taken.dtype)
        if given.size % out or given.size // out * into != taken.size:
            raise ValueError("src of %d and dst of %d elements do not fit %d ranks" % (given.size, taken.size, self.nranks))
        kind = _type(given.dtype)
        self._call(function, taken.ctypes.data, given.ctypes.data, given.size // out, kind, *more, None)
        self.quiet()

    def _reduce(self, function: Callable[..., int], dst: Any, src: Any, out: int, op: str, scale: Any) -> None:
        if scale is None:
            self._collective(function, dst, src, out, 1, _number(_OPS, op, "op"))
            return
        if op != "sum":
            raise ValueError("scale is for op 'sum', not %r" % op)
        factor, made = np.array(scale, dtype=_host_array(src).dtype), ctypes.c_int()
        if factor.size != 1:
            raise ValueError("scale has %d elements, not one" % factor.size)
        kind = _type(factor.dtype)
        self._call(lib.spmt_op_premul_create, kind, factor.ctypes.data, _SCALAR_HOST, ctypes.byref(made))
        try:
            self._collective(function, dst, src, out, 1, made.value)
        except BaseException:
            if self._handle is not None:
                lib.spmt_op_destroy(self._handle, made.value)  # what has failed is told already
            raise
        self._call(lib.spmt_op_destroy, made.value)

    def all_reduce(self, dst: Any, src: Any, op: str = "sum", scale: Any = None) -> None:
        """Combines src of all ranks, element by element, into dst on all.

        scale, one number, is for sums: this rank's src counts that many times. It is given on all ranks or on none, and may differ.
        """
        self._reduce(lib.spmt_all_reduce, dst, src, 1, op, scale)

    def reduce_scatter(self, dst: Any, src: Any, op: str = "sum", scale: Any = None) -> None:
        """As all_reduce; each rank gets its part, src.size / nranks elements."""
        self._reduce(lib.spmt_reduce_scatter, dst, src, self.nranks, op, scale)

    def all_gather(self, dst: Any, src: Any) -> None:
        """src of all ranks one behind the other in dst, on all."""
        self._collective(lib.spmt_all_gather, dst, src, 1, self.nranks)

    def all_to_all(self, dst: Any, src: Any) -> None:
        """Part i of src goes to rank i, where it is part `rank` of dst."""
        self._collective(lib.spmt_all_to_all, dst, src, self.nranks, self.nranks)

    def broadcast(self, dst: Any, src: Any, root: int) -> None:
        """src of rank root in dst on all."""
        self._collective(lib.spmt_broadcast, dst, src, 1, 1, root)

    def permute(self, dst: Any, src: Any, to: Sequence[int]) -> None:
        """src of rank i in dst of rank to[i]; -1: nowhere. dst is untouched where nothing comes."""
        if len(to) != self.nranks:
            raise ValueError("to has %d entries for %d ranks" % (len(to), self.nranks))
        for rank in to:
            _fits(rank)
        self._collective(lib.spmt_permute, dst, src, 1, 1, (ctypes.c_int * self.nranks)(*to))


def uid_create() -> Uid:
    """A new world's name, for ``init``."""
    uid = Uid()
    check(lib.spmt_uid_create(ctypes.byref(uid)))
    return uid


def init(
    rank: int = 0, nranks: int = 1, uid: Uid | None = None, *, device: int = -1, backend: str | None = None, heap_size: int = 0,
    timeout: float = 0,
) -> Comm:
    """Joins a world, and returns when all its ranks have. timeout is in seconds; 0: the default, below 0: none."""
    attr = Attr(
        ctypes.sizeof(Attr), rank, nranks, device, backend.encode() if backend else None, heap_size,
        ctypes.pointer(uid) if uid is not None else None, -1 if timeout < 0 else int(timeout * 1000), None,
    )
    handle = ctypes.c_void_p()
    call(None, lib.spmt_init, ctypes.byref(attr), ctypes.byref(handle))
    return Comm(handle.value or 0)


def run(nranks: int, fn: Callable[..., T], *args: Any, backend: str | None = None, heap_size: int = 0, timeout: float = 0) -> list[T]:
    """Runs ``fn(comm, *args)`` on a thread a rank, in a world of its own; their results, by rank.

    A rank whose fn raises aborts the world, and what the first of them raised is raised here. Ctrl-C does the same.
    """
    if nranks < 1:
        raise ValueError("nranks is %d" % nranks)
    uid = uid_create()
    results: list[Any] = [None] * nranks
    comms: list[Comm | None] = [None] * nranks
    raised: list[BaseException] = []
    lock = threading.Lock()
    stopped = threading.Event()
    done = [threading.Event() for _ in range(nranks)]  # join() of a thread returns too early once it was interrupted

    def told(error: BaseException) -> None:
        with lock:
            raised.append(error)

    def rank_main(rank: int) -> None:
        try:
            with init(rank, nranks, uid, backend=backend, heap_size=heap_size, timeout=timeout) as comm:
                comms[rank] = comm
                if stopped.is_set():
                    comm.abort()
                try:
                    results[rank] = fn(comm, *args)
                except BaseException as error:
                    told(error)  # before the world is aborted, which others raise
                    raise
        except BaseException as error:
            told(error)
        finally:
            done[rank].set()

    for rank in range(nranks):
        threading.Thread(target=rank_main, args=(rank,), daemon=True).start()
    try:
        for event in done:
            while not event.wait(0.05):
                pass
    except KeyboardInterrupt:
        stopped.set()
        for comm in comms:
            if comm is not None:
                comm.abort()
        for event in done:  # calls of the library end at once; fn itself may not
            event.wait(0.02)
        raise
    if raised:
        raise raised[0]
    return results
