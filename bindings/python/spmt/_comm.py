# SPDX-License-Identifier: MIT
"""Ranks, symmetric memory and calls between them."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import math
import operator
import threading
from types import TracebackType
from typing import Any, Callable, Iterator, Sequence, TypeVar

import numpy as np

from . import _dlpack
from ._arrays import Buffer, Symmetric, buffer, same_type, still_seen, symmetric
from ._lib import ERR_ABORTED, ERR_MISMATCH, ERR_UNSUPPORTED, Attr, Error, Uid, Unique, call, check, lib

T = TypeVar("T")

_TYPES = {
    name: number
    for number, name in enumerate(
        # those that numpy lacks are of ml_dtypes
        "int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32 float64 float8_e4m3fn float8_e5m2".split()
    )
}
_OPS = {name: number for number, name in enumerate("sum prod min max and or xor avg".split())}
_COMPARES = {name: number for number, name in enumerate("== != > >= < <=".split())}
_SIGNALS = {"set": 0, "add": 1}
_CAP_HOST_ACCESS = 6
_SCALAR_HOST = 0
_RANKS_MOST = 1 << 15
_REFUSED = {-errno.EINVAL, -errno.EBUSY, ERR_UNSUPPORTED}  # before anything is done
_STREAM_DEFAULT = 1  # the vendor's default stream; 0 is the comm's own


def _number(names: dict[str, int], name: str, what: str) -> int:
    if name not in names:
        raise ValueError("%s is %r, not one of %s" % (what, name, ", ".join(names)))
    return names[name]


_RANGES: dict[Any, tuple[int, int]] = {
    ctypes.c_int: (-(1 << 31), 1 << 31), ctypes.c_int64: (-(1 << 63), 1 << 63), ctypes.c_uint64: (0, 1 << 64), ctypes.c_size_t: (0, 1 << 64),
}


def _fits(value: int, kind: Any = ctypes.c_int) -> int:
    """ctypes would cut it, and takes no other numbers than int."""
    value = operator.index(value)
    least, end = _RANGES[kind]
    if not least <= value < end:
        raise ValueError("%d is not in %d .. %d" % (value, least, end - 1))
    return value


def _milliseconds(seconds: float) -> int:
    """As the library takes a deadline, for which 0 is the default: what is shorter than a millisecond is one."""
    if math.isnan(seconds):
        raise ValueError("a deadline of %r seconds" % seconds)
    return -1 if seconds < 0 or math.isinf(seconds) else _fits(math.ceil(seconds * 1000), ctypes.c_int64)


def _type(dtype: np.dtype[Any] | str) -> int:
    """The library's number of a type of numpy's, whose name does not tell the order of bytes."""
    if isinstance(dtype, np.dtype) and not dtype.isnative:
        raise ValueError("%s is not in this machine's order of bytes" % dtype.str)
    return _number(_TYPES, dtype if isinstance(dtype, str) else dtype.name, "the type")


def _numpy_type(dtype: np.dtype[Any] | str) -> np.dtype[Any]:
    if dtype == "bfloat16" or str(dtype).startswith("float8"):
        import ml_dtypes  # noqa: F401, which has numpy know these
    return np.dtype(dtype)


def _stream(stream: int | None) -> int:
    """A vendor's handle, as a call of the library takes it: of the vendor's default stream that is 0."""
    if stream is not None and not 0 <= stream < 1 << 64:
        raise ValueError("stream is %r, no handle of a stream" % stream)
    return stream or _STREAM_DEFAULT


class Comm(Unique):
    """One rank of a world. Calls come from any thread, one at a time.

    With ``stream``, a vendor's handle (0: its default stream), a call is put into that stream and returns: its arrays are touched when the
    stream comes to it. They are held until a ``quiet`` or ``barrier`` without a stream, or a collective, has returned. Without ``stream`` a
    call returns when it is done.
    """

    def __init__(self, handle: int) -> None:
        self._handle: int | None = handle
        self._life = threading.Lock()  # guards _handle: who aborts does not name a comm that another thread finalizes
        self.rank = check(lib.spmt_rank(handle))
        self.nranks = check(lib.spmt_nranks(handle))
        self.device = check(lib.spmt_device(handle))
        self.backend = (lib.spmt_backend(handle) or b"").decode()
        value = ctypes.c_int64()
        self._held: list[Buffer] = []  # by what is in streams
        self._broken = False  # so a call has found the world: those behind it are refused
        self._seen: dict[object, str] = {}  # who sees symmetric arrays, by a mark each, and how
        self._host_access = lib.spmt_query(handle, _CAP_HOST_ACCESS, ctypes.byref(value)) == 0 and value.value == 1

    def __repr__(self) -> str:
        return "<spmt.Comm rank %d of %d on %s %d>" % (self.rank, self.nranks, self.backend, self.device)

    def __enter__(self) -> Comm:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None and self._handle is not None:
            self.abort()
            _left.append(self)  # where a second Ctrl-C leaves it
            if not still_seen(self, self._seen):  # by frames of the traceback, say
                _end_left()
            return
        try:
            self.finalize()
        except BaseException:
            if self._handle is not None:
                self.abort()  # else the others wait for this rank
                _left.append(self)
            raise

    def _call(self, function: Callable[..., int], *args: Any) -> None:
        handle = self._checked(function, args)
        call(handle, function, handle, *args)

    def _queue(self, function: Callable[..., int], *args: Any) -> None:
        """As _call, of what waits for nobody: on this thread, whose own stream it may be."""
        check(function(self._checked(function, args), *args))

    def _checked(self, function: Any, args: tuple[Any, ...]) -> int:
        if self._handle is None:
            raise ValueError("the comm is finalized")
        for kind, value in zip(function.argtypes[1:], args):
            if kind in _RANGES:
                _fits(value, kind)
        return self._handle

    @contextlib.contextmanager
    def _buffers(self, stream: int | None, src: Any, dst: Any = None) -> Iterator[list[Buffer]]:
        """The memory of what a call reads, and of what it writes to, for as long as it takes; ``_leave`` takes it out of the list."""
        held: list[Buffer] = []
        try:
            held.append(buffer(self, src, stream))
            if dst is not None:
                held.append(buffer(self, dst, stream, writable=True))
            yield held
        finally:
            for one in held:
                one.release()

    @contextlib.contextmanager
    def _unless_refused(self, held: list[Buffer]) -> Iterator[None]:
        """Around a call: where it fails, or Ctrl-C ends it, a part of its work may be under way. The arrays are held, unless it is refused."""
        try:
            yield
        except (TypeError, ValueError):
            raise
        except BaseException as error:
            if not isinstance(error, Error) or not (self._broken or error.code in _REFUSED):
                self._hold(held)
            self._broken = self._is_broken()
            raise

    def _leave(self, held: list[Buffer], how: Callable[..., None], function: Callable[..., int], *args: Any) -> None:
        """_call or _queue, of what leaves its work in a stream: the arrays are held until a _wait."""
        with self._unless_refused(held):
            how(function, *args)
        self._hold(held)

    def _hold(self, held: list[Buffer]) -> None:
        self._held.extend(held)
        held.clear()

    def _move(self, plain: Callable[..., int], on_stream: Callable[..., int], stream: int | None, held: list[Buffer], *args: Any) -> None:
        if stream is None and not any(one.ordered for one in held):
            with self._unless_refused(held):
                self._call(plain, *args)
            return
        self._leave(held, self._queue, on_stream, *args, _stream(stream))
        if stream is None:
            self.quiet()

    def _wait(self, function: Callable[..., int]) -> None:
        """Until what is in streams is complete. In a broken world nothing touches its arrays either, once the call has failed; else
        a deadline may have come before the end of what does."""
        held, self._held = self._held, []
        try:
            self._call(function)
        except Error:
            if not self._is_broken():
                self._held, held = held + self._held, []
            raise
        finally:
            for one in held:
                one.release()

    def _is_broken(self) -> bool:
        """A status of SPMT_ERR_MISMATCH is of a whole world, too: there a put of nothing succeeds."""
        status = self.status()
        return status not in (0, ERR_MISMATCH) or (status == ERR_MISMATCH and lib.spmt_put(self._handle, None, None, 0, self.rank) != 0)

    # life

    def finalize(self) -> None:
        """Leaves the world: collective. A second time is a no-op. BufferError, and the comm stays, while views of symmetric arrays by
        numpy live or another package holds one by DLPack; ``Error`` (-EBUSY), and it stays as well, while another thread is in a call on
        it. A block of ``with`` that an exception leaves raises that alone: the world is aborted, and this rank's memory stays until nobody
        sees it and a next comm is made."""
        seen = still_seen(self, self._seen) if self._handle is not None else ""
        if seen:
            raise BufferError("the comm cannot be finalized: its arrays are still seen %s" % seen)
        self._finalize(lambda handle: call(handle, lib.spmt_finalize, handle))

    def _end(self) -> None:
        """Of a broken world, which has said why already."""
        with contextlib.suppress(Error):
            self._finalize(lambda handle: check(lib.spmt_finalize(handle)))

    def _finalize(self, how: Callable[[int], int]) -> None:
        with self._life:
            handle, self._handle = self._handle, None
        if handle is None:
            return
        held, self._held = self._held, []
        try:
            how(handle)
        except Error as error:
            if error.code == -errno.EBUSY:  # the one failure behind which the comm is still there
                with self._life:
                    self._handle = handle
                self._held, held = held + self._held, []
            raise
        finally:
            for one in held:
                one.release()

    def abort(self, code: int = ERR_ABORTED) -> None:
        """Breaks the world at once: every wait in it ends. Any thread."""
        with self._life:
            if self._handle is not None:
                check(lib.spmt_abort(self._handle, _fits(code)))

    def status(self) -> int:
        """0, or the code of what broke the world."""
        return int(lib.spmt_status(self._handle)) if self._handle is not None else -9

    def set_timeout(self, seconds: float) -> None:
        """The deadline of this rank's waits from here on; 0: the default again, below 0: none."""
        self._call(lib.spmt_set_timeout, _milliseconds(seconds))

    # memory

    def malloc(self, shape: int | Sequence[int], dtype: Any = np.float32) -> Symmetric:
        """Zeros of which every rank has a copy. Collective: the same arguments on all ranks."""
        dims = (operator.index(shape),) if hasattr(shape, "__index__") else tuple(operator.index(n) for n in shape)
        kind = np.dtype(dtype)
        ptr = ctypes.c_void_p()
        if kind.subdtype is not None:
            raise TypeError("elements of %s are arrays: put their dimensions into the shape" % kind)
        if kind.hasobject:
            raise TypeError("elements of %s are references, which mean nothing to another rank" % kind)
        if min(dims, default=0) < 0 or math.prod(dims) * kind.itemsize >= 1 << 63:
            raise ValueError("shape %r of %s" % (dims, kind))
        self._call(lib.spmt_calloc, max(math.prod(dims), 1), kind.itemsize, ctypes.byref(ptr))
        return Symmetric(self, ptr.value or 0, dims, kind)

    def put(self, dst: Symmetric, src: Any, pe: int, offset: int = 0, stream: int | None = None) -> None:
        """Writes an array, of dst's type, to rank pe's copy of dst, from element offset on."""
        symmetric(dst, "dst")
        with self._buffers(stream, src) as held:
            (data,) = held
            at = dst._at(offset, data.nbytes)
            same_type(data.dtype, dst.dtype)
            self._move(lib.spmt_put, lib.spmt_put_on_stream, stream, held, at, data.ptr, data.nbytes, pe)

    def get(self, dst: Any, src: Symmetric, pe: int, offset: int = 0, stream: int | None = None) -> None:
        """Reads from rank pe's copy of src, from element offset on, as much as dst holds."""
        symmetric(src, "src")
        with self._buffers(stream, src, dst) as held:
            data = held[1]
            at = src._at(offset, data.nbytes)
            same_type(src.dtype, data.dtype)
            self._move(lib.spmt_get, lib.spmt_get_on_stream, stream, held, data.ptr, at, data.nbytes, pe)

    def put_signal(
        self, dst: Symmetric, src: Any, signal: Symmetric, value: int, pe: int, op: str = "set", offset: int = 0, index: int = 0,
        stream: int | None = None,
    ) -> None:
        """put, and then signal: who sees the signal sees the data. The signal's array is of 64-bit integers."""
        symmetric(dst, "dst")
        word = symmetric(signal, "signal")._word(index)
        with self._buffers(stream, src) as held:
            (data,) = held
            at = dst._at(offset, data.nbytes)
            same_type(data.dtype, dst.dtype)
            self._move(
                lib.spmt_put_signal, lib.spmt_put_signal_on_stream, stream, held, at, data.ptr, data.nbytes, word, value,
                _number(_SIGNALS, op, "op"), pe,
            )

    def signal(self, signal: Symmetric, value: int, pe: int, op: str = "set", index: int = 0, stream: int | None = None) -> None:
        """Sets the word of rank pe, or adds to it. The array is of 64-bit integers."""
        args = symmetric(signal, "signal")._word(index), value, _number(_SIGNALS, op, "op"), pe
        if stream is None:
            self._call(lib.spmt_signal, *args)
        else:
            self._queue(lib.spmt_signal_on_stream, *args, _stream(stream))

    def signal_wait(self, signal: Symmetric, compare: str, value: int, index: int = 0, stream: int | None = None) -> int | None:
        """Waits until this rank's word, of an array of 64-bit integers, compares true (``"=="``, ``">="``, ..); what it was then. With a stream that waits, and there is None."""
        at, how = symmetric(signal, "signal")._word(index), _number(_COMPARES, compare, "compare")
        if stream is not None:
            self._queue(lib.spmt_signal_wait_on_stream, at, how, value, _stream(stream))
            return None
        seen = ctypes.c_uint64()
        self._call(lib.spmt_signal_wait, at, how, value, ctypes.byref(seen))
        return seen.value

    def fence(self) -> None:
        """Orders what was issued before it, to each rank, before what comes later."""
        self._call(lib.spmt_fence)

    def quiet(self, stream: int | None = None) -> None:
        """Waits until all that this comm has issued is complete; with a stream what is put there later does."""
        if stream is None:
            self._wait(lib.spmt_quiet)
        else:
            self._queue(lib.spmt_quiet_on_stream, _stream(stream))

    def barrier(self, stream: int | None = None) -> None:
        """Waits until all ranks have called; with a stream what is put there later does."""
        if stream is None:
            self._wait(lib.spmt_barrier)
        else:
            self._queue(lib.spmt_barrier_on_stream, _stream(stream))

    # collectives

    def _collective(self, function: Callable[..., int], held: list[Buffer], out: int, into: int, stream: int | None, *more: Any) -> None:
        """out and into: how many times the library's count src and dst are."""
        given, taken = held
        same_type(given.dtype, taken.dtype)
        if given.size % out or given.size // out * into != taken.size:
            raise ValueError("src of %d and dst of %d elements do not fit %d ranks" % (given.size, taken.size, self.nranks))
        args = taken.ptr, given.ptr, given.size // out, _type(given.dtype), *more
        if stream is not None:
            self._leave(held, self._queue, function, *args, _stream(stream))
            return
        self._leave(held, self._call, function, *args, _STREAM_DEFAULT if given.ordered or taken.ordered else None)
        self.quiet()

    def _moves(self, function: Callable[..., int], dst: Any, src: Any, out: int, into: int, stream: int | None, *more: Any) -> None:
        with self._buffers(stream, src, dst) as held:
            self._collective(function, held, out, into, stream, *more)

    def _reduce(self, function: Callable[..., int], dst: Any, src: Any, out: int, op: str, scale: Any, stream: int | None) -> None:
        if scale is None:
            self._moves(function, dst, src, out, 1, stream, _number(_OPS, op, "op"))
            return
        if op != "sum":
            raise ValueError("scale is for op 'sum', not %r" % op)
        with self._buffers(stream, src, dst) as held:
            given = held[0]
            factor, made = np.array(scale, dtype=_numpy_type(given.dtype)), ctypes.c_int()
            if factor.size != 1:
                raise ValueError("scale has %d elements, not one" % factor.size)
            if factor.dtype.kind in "iu" and factor != scale:
                raise ValueError("scale is %r, and the arrays are of %s" % (scale, factor.dtype))
            self._call(lib.spmt_op_premul_create, _type(given.dtype), factor.ctypes.data, _SCALAR_HOST, ctypes.byref(made))
            try:
                self._collective(function, held, out, 1, stream, made.value)
            except BaseException:
                if self._handle is not None:
                    lib.spmt_op_destroy(self._handle, made.value)  # what has failed is told already
                raise
            self._call(lib.spmt_op_destroy, made.value)

    def all_reduce(self, dst: Any, src: Any, op: str = "sum", scale: Any = None, stream: int | None = None) -> None:
        """Combines src of all ranks, element by element, into dst on all.

        op: sum, prod, min, max, avg (the sum divided by nranks), or, of integers, and, or, xor.
        scale, one number, is for sums: this rank's src counts that many times. It is given on all ranks or on none, and may differ.
        """
        self._reduce(lib.spmt_all_reduce, dst, src, 1, op, scale, stream)

    def reduce_scatter(self, dst: Any, src: Any, op: str = "sum", scale: Any = None, stream: int | None = None) -> None:
        """As all_reduce; each rank gets its part, src.size / nranks elements."""
        self._reduce(lib.spmt_reduce_scatter, dst, src, self.nranks, op, scale, stream)

    def all_gather(self, dst: Any, src: Any, stream: int | None = None) -> None:
        """src of all ranks one behind the other in dst, on all."""
        self._moves(lib.spmt_all_gather, dst, src, 1, self.nranks, stream)

    def all_to_all(self, dst: Any, src: Any, stream: int | None = None) -> None:
        """Part i of src goes to rank i, where it is part `rank` of dst."""
        self._moves(lib.spmt_all_to_all, dst, src, self.nranks, self.nranks, stream)

    def broadcast(self, dst: Any, src: Any, root: int, stream: int | None = None) -> None:
        """src of rank root in dst on all."""
        self._moves(lib.spmt_broadcast, dst, src, 1, 1, stream, root)

    def permute(self, dst: Any, src: Any, to: Sequence[int], stream: int | None = None) -> None:
        """src of rank i in dst of rank to[i]; -1: nowhere. dst is untouched where nothing comes."""
        if len(to) != self.nranks:
            raise ValueError("to has %d entries for %d ranks" % (len(to), self.nranks))
        for rank in to:
            _fits(rank)
        self._moves(lib.spmt_permute, dst, src, 1, 1, stream, (ctypes.c_int * self.nranks)(*to))


_left: list[Comm] = []  # of broken worlds, while somebody sees their arrays


def _end_left() -> None:
    if _left:
        _dlpack.look()
    for comm in list(_left):
        if not comm._seen:
            with contextlib.suppress(ValueError):  # another thread does the same
                _left.remove(comm)
            comm._end()
            if comm._handle is not None:  # another thread is in a call on it still
                _left.append(comm)


def uid_create() -> Uid:
    """A new world's name, for ``init``."""
    uid = Uid()
    check(lib.spmt_uid_create(ctypes.byref(uid)))
    return uid


def _attr(rank: int, nranks: int, uid: Uid | None, device: int, backend: str | None, heap_size: int, timeout: float) -> Attr:
    if backend and "\0" in backend:
        raise ValueError("a backend's name ends at its NUL: %r" % backend)
    return Attr(
        ctypes.sizeof(Attr), _fits(rank), _fits(nranks), _fits(device), backend.encode() if backend else None,
        _fits(heap_size, ctypes.c_size_t), ctypes.pointer(uid) if uid is not None else None, _milliseconds(timeout), None,
    )


_NO_DEVICE = _RANGES[ctypes.c_int][1] - 1


def _unjoin(again: Attr, handle: ctypes.c_void_p, over: threading.Event) -> None:
    """Of an init that Ctrl-C has left. Its rank once more, which is taken, ends a world in the making, whose wait may have no deadline; none of
    a job, whose worlds are counted. A comm that comes all the same is nobody's, and the others are told so."""
    if again.uid and again.nranks > 1:
        while not over.is_set() and lib.spmt_init(ctypes.byref(again), ctypes.byref(ctypes.c_void_p())) != -errno.EEXIST:
            over.wait(0.05)  # it has yet to join
    over.wait()
    if handle.value:
        lib.spmt_abort(handle.value, ERR_ABORTED)
        lib.spmt_finalize(handle.value)


def init(
    rank: int = 0, nranks: int = 1, uid: Uid | None = None, *, device: int = -1, backend: str | None = None, heap_size: int = 0,
    timeout: float = 0,
) -> Comm:
    """Joins a world, and returns when all its ranks have. timeout is in seconds; 0: the default, below 0: none. Ctrl-C ends a world with
    a uid for those who wait in it, too; the same uid may be tried again."""
    attr = _attr(rank, nranks, uid, device, backend, heap_size, timeout)
    _end_left()
    handle, begun, left, over = ctypes.c_void_p(), threading.Event(), threading.Event(), threading.Event()

    def join() -> int:
        begun.set()
        try:
            return -errno.EINTR if left.is_set() else int(lib.spmt_init(ctypes.byref(attr), ctypes.byref(handle)))
        finally:
            over.set()

    try:
        call(None, join)
        return Comm(handle.value or 0)
    except KeyboardInterrupt:
        left.set()
        if not begun.is_set():
            raise
        again = _attr(rank, nranks, uid, _NO_DEVICE, backend, heap_size, timeout)
        thread = threading.Thread(target=_unjoin, args=(again, handle, over), daemon=True)
        thread.start()
        thread.join(0.5)  # it keeps what it failed with for those who come, a tenth of a second
        raise


def run(nranks: int, fn: Callable[..., T], *args: Any, backend: str | None = None, heap_size: int = 0, timeout: float = 0) -> list[T]:
    """Runs ``fn(comm, *args)`` on a thread a rank, in a world of its own; their results, by rank.

    A rank whose fn raises aborts the world, and what the first of them raised is raised here. Ctrl-C does the same.
    """
    nranks = _fits(nranks)
    if nranks < 1:
        raise ValueError("nranks is %d" % nranks)
    uid = uid_create()
    if nranks > _RANKS_MOST:
        init(0, nranks, uid)  # which says why
    no_device = _attr(nranks - 1, nranks, uid, _NO_DEVICE, backend, heap_size, timeout)
    results: list[Any] = [None] * nranks
    comms: list[Comm | None] = [None] * nranks
    raised: list[BaseException] = []
    lock = threading.Lock()
    stopped = threading.Event()
    done: list[threading.Event] = []  # of the threads there are; join() of one returns too early once it was interrupted

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
                    comm.finalize()
                except BaseException as error:
                    told(error)  # before the world is aborted, which others raise
                    raise
        except BaseException as error:
            told(error)
        finally:
            done[rank].set()

    def last_fails() -> None:
        """Where the last rank has no thread, this ends the others' wait for it, which may have no deadline. call() would want a thread."""
        if len(done) < nranks:
            lib.spmt_init(ctypes.byref(no_device), ctypes.byref(ctypes.c_void_p()))

    try:
        for rank in range(nranks):
            if raised:
                break
            done.append(threading.Event())
            try:
                threading.Thread(target=rank_main, args=(rank,), daemon=True).start()
            except RuntimeError as error:  # no more threads
                done.pop()
                told(error)
        for event in done:
            while not event.wait(0.05):
                last_fails()  # again, as of a thread that came to its init later the world is a new one
    except KeyboardInterrupt:
        stopped.set()
        for comm in comms:
            if comm is not None:
                comm.abort()
        last_fails()
        for event in done:  # calls of the library end at once; fn itself may not
            event.wait(0.02)
        raise
    if raised:
        try:
            raise raised[0]
        finally:
            raised.clear()  # tracebacks lead here: what their frames see goes with them, and waits for no collection of garbage
    return results
