# SPDX-License-Identifier: MIT
"""The shared library: where it is, and its functions with their types."""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.resources
import operator
import os
import threading
from typing import Any, Callable, NoReturn

VERSION_MIN = 100  # 0.1.0


class Error(RuntimeError):
    """A call of libspmt that failed: its code (``-errno`` or one of ``SPMT_ERR_*``) and the sentence that says why."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class Unique:
    """What names a thing of the library's by its address: a copy would still name it when it is gone."""

    _instead = ""

    def __reduce__(self) -> NoReturn:
        raise TypeError("%s cannot be copied or pickled%s" % (type(self).__name__, self._instead))


def whole(value: int, what: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError("%s is %r, which is no integer" % (what, value)) from None


ERR_TIMEOUT = -10001
ERR_ABORTED = -10002
ERR_PEER_DEAD = -10003
ERR_MISMATCH = -10004
ERR_FORKED = -10005
ERR_UNSUPPORTED = -10006
ERR_BROKEN = -10007


class Uid(ctypes.Structure):
    """The name of one world. Holds a secret."""

    _fields_ = [("bytes", ctypes.c_ubyte * 128)]


class Attr(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("rank", ctypes.c_int),
        ("nranks", ctypes.c_int),
        ("device", ctypes.c_int),
        ("backend", ctypes.c_char_p),
        ("heap_size", ctypes.c_size_t),
        ("uid", ctypes.POINTER(Uid)),
        ("timeout_ms", ctypes.c_int64),
        ("bootstrap", ctypes.c_void_p),
    ]


class PlanAttr(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("collective", ctypes.c_char_p),
        ("nranks", ctypes.c_int),
        ("in_place", ctypes.c_int),
        ("input_chunks", ctypes.c_uint32),
        ("output_chunks", ctypes.c_uint32),
        ("scratch_chunks", ctypes.c_uint32),
        ("min_bytes", ctypes.c_uint64),
        ("max_bytes", ctypes.c_uint64),
    ]


class PlanInfo(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("attr", PlanAttr), ("blocks", ctypes.c_int), ("ops", ctypes.c_size_t)]


class PlanChunk(ctypes.Structure):
    _fields_ = [("rank", ctypes.c_int), ("buffer", ctypes.c_int), ("index", ctypes.c_uint32), ("count", ctypes.c_uint32)]


class PlanOp(ctypes.Structure):
    _fields_ = (
        [("size", ctypes.c_size_t)]
        + [(name, ctypes.c_int) for name in "kind peer index blocks initial slice slices nsrc ndst".split()]
        + [("src", PlanChunk * 16), ("dst", PlanChunk * 16)]
    )


class PlanTrial(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("out", ctypes.c_void_p),
        ("in_", ctypes.c_void_p),
        ("count", ctypes.c_size_t),
        ("type", ctypes.c_int),
        ("op", ctypes.c_int),
        ("seed", ctypes.c_uint64),
    ]


def _candidates() -> list[str]:
    named = os.environ.get("SPMT_LIBRARY")
    if named:
        return [named]
    carried = os.path.abspath(str(importlib.resources.files(__package__) / "libspmt.so.0"))  # of an editable package not beside this file
    return ([carried] if os.path.exists(carried) else []) + ["libspmt.so.0"]


def _load() -> tuple[ctypes.CDLL, str]:
    reasons = []
    for name in _candidates():
        try:
            return ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL), name
        except OSError as error:
            reasons.append(str(error))
    raise ImportError(
        "libspmt is not found: %s. Set SPMT_LIBRARY to its path, or install it where the loader looks" % "; ".join(reasons)
    )


lib, path = _load()

_p, _i, _u64, _z = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_size_t
_prototypes: dict[str, list[Any]] = {
    "spmt_uid_create": [ctypes.POINTER(Uid)],
    "spmt_init": [ctypes.POINTER(Attr), ctypes.POINTER(_p)],
    "spmt_finalize": [_p],
    "spmt_abort": [_p, _i],
    "spmt_status": [_p],
    "spmt_rank": [_p],
    "spmt_nranks": [_p],
    "spmt_device": [_p],
    "spmt_set_timeout": [_p, ctypes.c_int64],
    "spmt_query": [_p, _i, ctypes.POINTER(ctypes.c_int64)],
    "spmt_calloc": [_p, _z, _z, ctypes.POINTER(_p)],
    "spmt_free": [_p, _p],
    "spmt_copy_in": [_p, _p, _p, _z],
    "spmt_copy_out": [_p, _p, _p, _z],
    "spmt_put": [_p, _p, _p, _z, _i],
    "spmt_get": [_p, _p, _p, _z, _i],
    "spmt_put_signal": [_p, _p, _p, _z, _p, _u64, _i, _i],
    "spmt_signal": [_p, _p, _u64, _i, _i],
    "spmt_signal_wait": [_p, _p, _i, _u64, ctypes.POINTER(_u64)],
    "spmt_put_on_stream": [_p, _p, _p, _z, _i, _p],
    "spmt_get_on_stream": [_p, _p, _p, _z, _i, _p],
    "spmt_put_signal_on_stream": [_p, _p, _p, _z, _p, _u64, _i, _i, _p],
    "spmt_signal_on_stream": [_p, _p, _u64, _i, _i, _p],
    "spmt_signal_wait_on_stream": [_p, _p, _i, _u64, _p],
    "spmt_fence": [_p],
    "spmt_quiet": [_p],
    "spmt_quiet_on_stream": [_p, _p],
    "spmt_barrier": [_p],
    "spmt_barrier_on_stream": [_p, _p],
    "spmt_broadcast": [_p, _p, _p, _z, _i, _i, _p],
    "spmt_all_gather": [_p, _p, _p, _z, _i, _p],
    "spmt_all_to_all": [_p, _p, _p, _z, _i, _p],
    "spmt_reduce_scatter": [_p, _p, _p, _z, _i, _i, _p],
    "spmt_all_reduce": [_p, _p, _p, _z, _i, _i, _p],
    "spmt_permute": [_p, _p, _p, _z, _i, ctypes.POINTER(_i), _p],
    "spmt_plan_create": [ctypes.POINTER(PlanAttr), ctypes.POINTER(_p)],
    "spmt_plan_add": [_p, _i, _i, ctypes.POINTER(PlanOp)],
    "spmt_plan_about": [_p, ctypes.POINTER(PlanInfo)],
    "spmt_plan_check": [_p],
    "spmt_plan_read": [ctypes.c_char_p, _z, ctypes.POINTER(_p)],
    "spmt_plan_write": [_p, _i, ctypes.c_char_p, _z, ctypes.POINTER(_z)],
    "spmt_plan_simulate": [_p, ctypes.POINTER(PlanTrial)],
    "spmt_plan_begin": [_p, _p, _z, ctypes.POINTER(_p)],
    "spmt_plan_run": [_p, _p, _p, _p, _z, _i, _i, _p],
    "spmt_plan_end": [_p, _p],
}
if hasattr(lib, "spmt_op_premul_create"):  # since 0.2
    _prototypes["spmt_op_premul_create"] = [_p, _i, _p, _i, ctypes.POINTER(_i)]
    _prototypes["spmt_op_destroy"] = [_p, _i]
if not hasattr(lib, "spmt_version_number"):
    raise ImportError("%s is no libspmt.so: it has no spmt_version_number()" % path)
for _name in ("spmt_last_error", "spmt_version"):
    getattr(lib, _name).restype = ctypes.c_char_p
if lib.spmt_version_number() < VERSION_MIN:
    raise ImportError("%s is libspmt %s, older than this package" % (path, lib.spmt_version().decode()))
for _name, _types in _prototypes.items():
    if not hasattr(lib, _name):
        raise ImportError("%s is libspmt %s, older than this package: it has no %s()" % (path, lib.spmt_version().decode(), _name))
    _function = getattr(lib, _name)
    _function.argtypes = _types
    _function.restype = ctypes.c_int
lib.spmt_strerror.argtypes = [ctypes.c_int]
lib.spmt_strerror.restype = ctypes.c_char_p
lib.spmt_plan_destroy.argtypes = [_p]
lib.spmt_plan_destroy.restype = None
lib.spmt_backend.argtypes = [_p]
lib.spmt_backend.restype = ctypes.c_char_p


def failure(code: int) -> Error:
    """What this thread's last call left."""
    sentence: bytes = lib.spmt_last_error() or lib.spmt_strerror(code)
    return Error(code, sentence.decode(errors="replace"))


def check(code: int) -> int:
    """The code of a call that did not fail."""
    if code < 0:
        raise failure(code)
    return code


def call(comm: int | None, function: Callable[..., int], *args: Any) -> int:
    """Calls a function of the library that may wait.

    Python answers Ctrl-C between two steps of its main thread only. So there the call runs on another thread, and Ctrl-C
    aborts the world, which ends the call.
    """
    if threading.current_thread() is not threading.main_thread():
        return check(function(*args))
    result: list[Any] = []
    done = threading.Event()  # join() of a thread returns too early once it was interrupted

    def run() -> None:
        try:
            code = function(*args)
            result.append(code if code >= 0 else failure(code))
        except BaseException as error:  # of ctypes, of an argument
            result.append(error)
        finally:
            done.set()

    threading.Thread(target=run, daemon=True).start()
    try:
        while not done.wait(0.05):
            pass
    except KeyboardInterrupt:
        if comm is not None:
            lib.spmt_abort(comm, ERR_ABORTED)
            done.wait()
        raise
    if isinstance(result[0], BaseException):
        raise result[0]
    return int(result[0])
