# SPDX-License-Identifier: MIT
"""What calls are given as buffers: arrays of numpy, of DLPack, in whatever memory the ranks' device reaches, and symmetric ones."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import gc
import math
import sys
import time
import weakref
from typing import TYPE_CHECKING, Any, Callable

import numpy as np

from . import _dlpack
from ._lib import ERR_UNSUPPORTED, Error, Unique, lib, whole

if TYPE_CHECKING:
    from ._comm import Comm

_LOADABLE = (_dlpack.CPU, _dlpack.CUDA_HOST, _dlpack.ROCM_HOST, _dlpack.CUDA_MANAGED)
_REACHED = {  # by ranks on a backend's devices, the device's own memory first
    "cuda": (_dlpack.CUDA, _dlpack.CUDA_HOST, _dlpack.CUDA_MANAGED),
    "hip": (_dlpack.ROCM, _dlpack.ROCM_HOST),
}


class Buffer:
    """Contiguous memory: held until ``release``."""

    def __init__(self, ptr: int, size: int, nbytes: int, dtype: Any, owner: Any, ordered: bool = False) -> None:
        self.ptr, self.size, self.nbytes, self.dtype = ptr, size, nbytes, dtype
        self._owner = owner
        self.ordered = ordered  # its producer has made a stream wait, which a call has to be in

    def release(self) -> None:
        owner, self._owner = self._owner, None
        if isinstance(owner, _dlpack.Taken):
            owner.release()


def same_type(src: Any, dst: Any) -> None:
    """Types of numpy's, or names of such."""
    one, other = (kind if isinstance(kind, str) or not kind.isnative else kind.name for kind in (src, dst))
    if src != dst and (one != other or not (isinstance(src, str) or isinstance(dst, str))):
        raise TypeError("src is of %s and dst of %s" % (src, dst))


def _contiguous(comm: Comm, value: Any, writable: bool) -> Buffer:
    """Of memory that the CPU loads from; nothing is copied where it is written to."""
    array = value if writable else np.asarray(value)
    if not isinstance(array, np.ndarray):
        raise TypeError("an array to write to has to be one of numpy, of DLPack or symmetric, not %s" % type(value).__name__)
    if writable and not (array.flags.writeable and array.flags.c_contiguous):
        raise ValueError("an array to write to has to be writable and contiguous")
    if comm.backend in _REACHED:
        raise TypeError(
            "%s is in memory of the CPU, which a GPU need not reach: rank %d takes symmetric arrays (Symmetric.copy_in, copy_out) and, by "
            "DLPack, memory of its GPU or pinned for it" % (type(value).__name__, comm.rank)
        )
    array = np.ascontiguousarray(array) if not array.flags.c_contiguous else array
    return Buffer(array.ctypes.data, array.size, array.nbytes, array.dtype, array)


def _check_place(comm: Comm, what: str, kind: int, id: int) -> None:
    reached = _REACHED.get(comm.backend)
    place = _dlpack.place(kind, id)
    if reached is None and kind not in _LOADABLE:
        raise TypeError(
            "%s is in memory of %s, and the ranks are on backend %s: arrays have to be in memory that the CPU loads from" % (what, place, comm.backend)
        )
    if reached is None or kind == _dlpack.CPU:
        return
    own = _dlpack.place(reached[0], comm.device)
    if kind not in reached:
        raise TypeError("%s is in memory of %s, and rank %d is on %s" % (what, place, comm.rank, own))
    if kind == reached[0] and id != comm.device:
        raise ValueError("%s is in memory of %s, and rank %d is on %s: pass what is on the rank's own device" % (what, place, comm.rank, own))


def _producer_stream(comm: Comm, stream: int | None) -> int:
    """What DLPack calls the stream in which the call will be: the default one is 0 for ROCm, and 1 for CUDA."""
    if stream is None or stream <= 1:
        return 0 if comm.backend == "hip" else 1
    return stream


def _is_of_jax(value: Any) -> bool:
    """JAX's arrays do not change, which the first protocol, the one that they speak, cannot say."""
    kind = getattr(sys.modules.get("jax"), "Array", None)
    return kind is not None and isinstance(value, kind)


def buffer(comm: Comm, value: Any, stream: int | None, writable: bool = False) -> Buffer:
    """The memory of an argument, and whether the call has to be in a stream: the given one, or the default one for None."""
    if isinstance(value, Symmetric):
        return Buffer(value._at(0, 0), value.size, value.nbytes, value.dtype, value)
    if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack__"):
        return _contiguous(comm, value, writable)
    kind, id = _dlpack.device_of(value)
    what = type(value).__name__
    _check_place(comm, what, kind, id)
    if comm.backend in _REACHED and kind == _dlpack.CPU:
        return _contiguous(comm, np.from_dlpack(value), writable)
    if comm.backend not in _REACHED:
        try:
            return _contiguous(comm, np.from_dlpack(value), writable)
        except (RuntimeError, BufferError):  # numpy has no bfloat16, say, and knows none by DLPack
            pass
    streamed = comm.backend in _REACHED and kind not in (_dlpack.CUDA_HOST, _dlpack.ROCM_HOST)  # of the CPU's memory, where producers know no stream
    taken = _dlpack.take(value, _producer_stream(comm, stream) if streamed else None)
    try:
        _check_place(comm, what, *taken.device)
        if writable and (taken.read_only or _is_of_jax(value)):
            raise ValueError("%s is read-only, and an array to write to" % what)
    except BaseException:
        taken.release()
        raise
    return Buffer(taken.ptr, taken.size, taken.nbytes, taken.dtype, taken, ordered=streamed)


_BY_DLPACK, _BY_NUMPY = "by DLPack", "by numpy (views of .array)"


class _Cycle:
    def __init__(self) -> None:
        self.itself = self


def _collect() -> None:
    """All garbage, for which gc.collect() does nothing while another thread collects. For a second at most: it may be this one that does."""
    gone = weakref.ref(_Cycle())
    for _ in range(1000):
        gc.collect()
        if gone() is None:
            return
        time.sleep(0.001)


def still_seen(comm: Comm, seen: dict[object, str]) -> str:
    """Who sees one of the comm's arrays, or all of them, in words: none where nobody does."""
    _dlpack.look()
    if seen and comm._held:  # a call in a stream may have been given a view
        with contextlib.suppress(Error):
            comm.quiet()
    if seen:
        _collect()
        _dlpack.look()
    ways = list(seen.values())
    return " and ".join("%s, %d times" % (way, ways.count(way)) for way in dict.fromkeys(ways))


class Symmetric(Unique):
    """An array of which every rank has a copy, reached by ``put`` and ``get``. Made by ``Comm.malloc``.

    ``array`` is this rank's own copy as numpy sees it, where the CPU can load from it. Other packages see the copy by DLPack, in a GPU's
    memory, too: ``torch.from_dlpack(block)``. While they hold it, or a view by numpy lives, it cannot be freed, nor its comm finalized.
    """

    def __init__(self, comm: Comm, ptr: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.comm, self.ptr, self.shape, self.dtype = comm, ptr, shape, dtype
        self.size = math.prod(shape)
        self.nbytes = self.size * dtype.itemsize
        self._seen: dict[object, str] = {}  # who sees it, by a mark each, and how

    def _check(self) -> None:
        if not self.ptr:
            raise ValueError("the array was freed")
        if self.comm._handle is None:
            raise ValueError("the array ended with its comm, which is finalized")

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """A view of this rank's copy. While it lives, ``free`` and the comm's ``finalize`` raise BufferError."""
        self._check()
        if not self.comm._host_access:
            raise Error(ERR_UNSUPPORTED, "the CPU cannot load from memory of backend %s" % self.comm.backend)
        memory: Any = (ctypes.c_ubyte * self.nbytes).from_address(self.ptr)
        mark = object()  # not before it is sure to go with the memory, which all views of the view have as their base
        weakref.finalize(memory, self._unseen, mark).atexit = False
        self._seen[mark] = self.comm._seen[mark] = _BY_NUMPY
        return np.frombuffer(memory, dtype=self.dtype, count=self.size).reshape(self.shape)

    def copy_in(self, array: Any, offset: int = 0) -> None:
        """Writes an array of the CPU's, of this one's type, to this rank's copy, from element offset on. On whatever backend."""
        given = np.ascontiguousarray(array)
        same_type(given.dtype, self.dtype)
        self.comm._call(lib.spmt_copy_in, self._at(offset, given.nbytes), given.ctypes.data, given.nbytes)

    def copy_out(self) -> np.ndarray[Any, Any]:
        """This rank's copy, copied into memory of the CPU. On whatever backend."""
        got = np.empty(self.shape, self.dtype)
        self.comm._call(lib.spmt_copy_out, got.ctypes.data, self._at(0, self.nbytes), self.nbytes)
        return got

    def __dlpack_device__(self) -> tuple[int, int]:
        self._check()
        reached = _REACHED.get(self.comm.backend)
        return (reached[0], self.comm.device) if reached else (_dlpack.CPU, 0)

    def __dlpack__(
        self, *, stream: int | None = None, max_version: tuple[int, int] | None = None, dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """In a GPU's memory: what is put into ``stream`` later waits for what this comm has issued (None: the default stream, -1: none)."""
        device = self.__dlpack_device__()
        if copy and device[0] == _dlpack.CPU:
            return self.array.copy().__dlpack__(max_version=max_version) if max_version else self.array.copy().__dlpack__()
        if copy or (dl_device is not None and tuple(dl_device) != device):
            raise BufferError("a symmetric array is given where it is, in memory of %s, and not copied" % _dlpack.place(*device))
        if device[0] == _dlpack.CPU and stream is not None:
            raise ValueError("stream is %r for memory of the CPU, which has none" % stream)
        if device[0] == _dlpack.CUDA and stream == 0:
            raise ValueError("stream 0 is ambiguous for CUDA: 1 is the default stream, 2 that of the thread")
        if device[0] == _dlpack.ROCM and stream in (1, 2):
            raise ValueError("stream %d is no stream of ROCm" % stream)
        name, bits, versioned = self.dtype.name, 8 * self.dtype.itemsize, max_version is not None and max_version[0] >= 1
        if not self.dtype.isnative:
            raise BufferError("DLPack has no type %s" % self.dtype.str)
        if device[0] != _dlpack.CPU and stream != -1:
            self.comm.quiet(stream or 0)  # the default stream, which ROCm's 0 names as well
        ended = self._mark(_BY_DLPACK)
        try:
            return _dlpack.give(self.ptr, self.shape, name, bits, device, versioned, ended)
        except BaseException:
            ended()
            raise

    def _mark(self, how: str) -> Callable[[], None]:
        """What is returned is called when that holder is gone, by any thread."""
        mark = object()  # a thread changes a dict in one step
        self._seen[mark] = self.comm._seen[mark] = how
        return functools.partial(self._unseen, mark)

    def _unseen(self, mark: object) -> None:
        self._seen.pop(mark, None)
        self.comm._seen.pop(mark, None)

    def free(self) -> None:
        """Collective, as ``malloc``. BufferError, and the array stays, while a view by numpy lives or another package holds it by DLPack."""
        seen = still_seen(self.comm, self._seen)
        if seen:
            raise BufferError("the array cannot be freed: it is still seen %s" % seen)
        ptr, self.ptr = self.ptr, 0
        try:
            self.comm._call(lib.spmt_free, ptr)
        except Error as error:
            if error.code != -errno.EFAULT:  # the one failure behind which the block is gone
                self.ptr = ptr
            raise

    def _word(self, index: int) -> int:
        if self.dtype.kind not in "iu" or self.dtype.itemsize != 8:
            raise TypeError("signals are 64-bit integers, not %s" % self.dtype)
        return self._at(whole(index, "index"), 8)

    def _at(self, offset: int, nbytes: int) -> int:
        self._check()
        start = whole(offset, "offset") * self.dtype.itemsize
        if start < 0 or start + nbytes > self.nbytes:
            raise ValueError("%d bytes from element %d are not inside an array of %d bytes" % (nbytes, offset, self.nbytes))
        return self.ptr + start


def symmetric(value: Any, what: str) -> Symmetric:
    if not isinstance(value, Symmetric):
        raise TypeError("%s has to be a symmetric array, which Comm.malloc makes, not %s" % (what, type(value).__name__))
    return value
