# SPDX-License-Identifier: MIT
"""DLPack by ctypes: memory of others, without any of their packages, and ours for others.

Both structs of the protocol are taken and given: the first one, and that of version 1.
"""

from __future__ import annotations

import atexit
import ctypes
import math
import sys
import threading
from typing import Any, Callable

CPU, CUDA, CUDA_HOST, ROCM, ROCM_HOST, CUDA_MANAGED = 1, 2, 3, 10, 11, 13
_NAMES = {
    CPU: "the CPU", CUDA: "CUDA", CUDA_HOST: "the CPU, pinned for CUDA", 4: "OpenCL", 7: "Vulkan", 8: "Metal", 9: "VPI", ROCM: "ROCm",
    ROCM_HOST: "the CPU, pinned for ROCm", CUDA_MANAGED: "CUDA's managed", 14: "oneAPI", 15: "WebGPU", 16: "Hexagon", 17: "MAIA",
}
_CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool", 10: "float8_e4m3fn", 12: "float8_e5m2"}
_READ_ONLY = 1  # of flags
_VERSION = (1, 0)


class _Device(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("id", ctypes.c_int32)]


class _Type(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


# A capsule keeps the pointer to its name, so these live as long as this module. The names of what is taken, and of what was.
_FORMS: tuple[tuple[bytes, bytes, Any], ...] = (
    (b"dltensor_versioned", b"used_dltensor_versioned", _Versioned), (b"dltensor", b"used_dltensor", _Managed),
)
_capsule_is = ctypes.pythonapi.PyCapsule_IsValid
_capsule_is.argtypes = [ctypes.py_object, ctypes.c_char_p]
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.argtypes, _capsule_pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
_capsule_rename = ctypes.pythonapi.PyCapsule_SetName
_capsule_rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
_capsule_new = ctypes.pythonapi.PyCapsule_New
_capsule_new.argtypes, _capsule_new.restype = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p], ctypes.py_object


def place(kind: int, id: int) -> str:
    """Of a device, for sentences."""
    name = _NAMES.get(kind, "a device of kind %d" % kind)
    return "%s device %d" % (name, id) if kind in (CUDA, ROCM) else name


# ---- what others give


class Taken:
    """Memory of a producer's, until ``release``: contiguous, its type by numpy's name."""

    def __init__(self, what: str, managed: Any, address: int) -> None:
        self._deleter, self._address = managed.deleter, address
        try:
            self._read(what, managed)
        except BaseException:
            self.release()
            raise

    def _read(self, what: str, managed: Any) -> None:
        if getattr(managed, "major", 1) != 1:  # then nothing of it may be looked at but the deleter
            raise BufferError("%s speaks version %d of DLPack, not 1" % (what, managed.major))
        tensor = managed.tensor
        self.shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
        self.size = math.prod(self.shape)
        self.dtype = _name(what, tensor.dtype)
        self.nbytes = self.size * (tensor.dtype.bits // 8)
        self.ptr = (tensor.data or 0) + tensor.byte_offset
        self.read_only = bool(getattr(managed, "flags", 0) & _READ_ONLY)
        self.device = (int(tensor.device.kind), int(tensor.device.id))
        step = 1
        for i in reversed(range(tensor.ndim)):
            if tensor.strides and self.size and self.shape[i] != 1 and tensor.strides[i] != step:
                raise ValueError("%s is not contiguous" % what)
            step *= self.shape[i]

    def release(self) -> None:
        """Once, whoever calls."""
        deleter, self._deleter = self._deleter, None
        if deleter:
            _Deleter(deleter)(self._address)


def _name(what: str, dtype: _Type) -> str:
    code = _CODES.get(dtype.code)
    if code is None or dtype.lanes != 1 or dtype.bits % 8:
        raise TypeError("%s has elements of code %d, %d bits and %d lanes" % (what, dtype.code, dtype.bits, dtype.lanes))
    return code if code == "bool" or dtype.code > 6 else "%s%d" % (code, dtype.bits)


def device_of(value: Any) -> tuple[int, int]:
    kind, id = value.__dlpack_device__()
    return int(kind), int(id)


def take(value: Any, stream: int | None) -> Taken:
    """value's memory; the producer has work of the stream that comes later wait for its own. None: none is to be asked for."""
    what = type(value).__name__
    keywords: dict[str, Any] = {} if stream is None else {"stream": stream}
    try:
        capsule = value.__dlpack__(max_version=_VERSION, **keywords)
    except TypeError:  # a producer of before version 1 does not know the word
        capsule = value.__dlpack__(**keywords)
    for name, used, form in _FORMS:
        if _capsule_is(capsule, name):
            address = _capsule_pointer(capsule, name)
            _capsule_rename(capsule, used)
            return Taken(what, form.from_address(address), address)
    raise BufferError("%s gives no capsule of DLPack, or one that was used" % what)


# ---- what others get

_libc = ctypes.CDLL(None)
_libc.malloc.argtypes, _libc.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
_libc.free.argtypes, _libc.free.restype = [ctypes.c_void_p], None

_lock = threading.RLock()  # guards _given; a collection of garbage within it may come back here


class _Given:
    """A struct that another holds, or may take out of its capsule."""

    def __init__(self, managed: Any, capsule_name: bytes, ended: Callable[[], None]) -> None:
        self.managed, self.capsule_name, self.ended = managed, capsule_name, ended
        self.capsule: Any = None  # until it is known to be taken. It has no destructor, which could not call Python where an error is set


_given: dict[int, _Given] = {}  # by address


def _done(address: int) -> None:
    with _lock:
        given = _given.pop(address)
    _libc.free(address)
    given.ended()


_done_p = _Deleter(_done)


def look() -> None:
    """Ends what is in capsules that nobody has taken and nobody has."""
    with _lock:
        for address, given in list(_given.items()):
            if given.capsule is None:
                continue
            if not _capsule_is(given.capsule, given.capsule_name):
                given.capsule = None
            elif sys.getrefcount(given.capsule) <= 2:
                _done(address)


@atexit.register
def _leave() -> None:
    """Python may be gone when the last holder lets go: from here on that frees the struct alone."""
    with _lock:
        for given in _given.values():
            given.managed.deleter = ctypes.cast(_libc.free, ctypes.c_void_p).value


def _dl_type(name: str, bits: int) -> _Type:
    code = next((code for code, start in _CODES.items() if name == start or code < 6 and name == "%s%d" % (start, bits)), None)
    if code is None:
        raise BufferError("DLPack has no type %s" % name)
    return _Type(code, bits, 1)


def give(ptr: int, shape: tuple[int, ...], name: str, bits: int, device: tuple[int, int], versioned: bool, ended: Callable[[], None]) -> Any:
    """A capsule of this memory. ended is called once nobody holds it any more, by any thread."""
    dtype, n = _dl_type(name, bits), len(shape)
    capsule_name, _, form = _FORMS[0 if versioned else 1]
    size = ctypes.sizeof(form)
    address = _libc.malloc(size + 16 * max(n, 1))
    if not address:
        raise MemoryError
    ctypes.memset(address, 0, size)
    numbers = (ctypes.c_int64 * (2 * n)).from_address(address + size)
    for i in range(n):
        numbers[i], numbers[n + i] = shape[i], math.prod(shape[i + 1 :])
    managed = form.from_address(address)
    managed.deleter = ctypes.cast(_done_p, ctypes.c_void_p).value
    if versioned:
        managed.major, managed.minor = _VERSION
    at = ctypes.cast(address + size, ctypes.POINTER(ctypes.c_int64))
    behind = ctypes.cast(address + size + 8 * n, ctypes.POINTER(ctypes.c_int64))
    managed.tensor = _Tensor(ptr, _Device(*device), n, dtype, at, behind, 0)
    given = _Given(managed, capsule_name, ended)
    with _lock:
        _given[address] = given
        given.capsule = _capsule_new(address, capsule_name, None)
    return given.capsule
