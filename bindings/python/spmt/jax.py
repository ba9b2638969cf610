# SPDX-License-Identifier: MIT
"""Collectives of libspmt inside ``jax.shard_map``.

    with spmt.jax.world(mesh, axis="x") as w:
        y = jax.jit(jax.shard_map(lambda x: w.psum(x), mesh=mesh, in_specs=P("x"), out_specs=P()))(x)

Arguments and results are those of ``jax.lax``; they work under jit, scan, vmap and grad. ``patch()`` has the functions of
``jax.lax`` themselves take these calls. docs/jax.md says more.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import math
import operator
import os
import random
import re
import threading
import warnings
from functools import partial
from types import TracebackType
from typing import Any, Callable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from . import _lib
from ._lib import ERR_FORKED, ERR_UNSUPPORTED, Error

# ---- XLA's pool of threads for its CPU devices


def _clients_exist() -> bool:
    try:
        from jax._src.xla_bridge import backends_are_initialized
    except ImportError:
        return True
    return bool(backends_are_initialized())


def _devices_wanted() -> int:
    """CPU devices that a client made now would have."""
    forced = re.findall(r"xla_force_host_platform_device_count=(\d+)", os.environ.get("XLA_FLAGS", ""))
    return max(int(forced[-1]) if forced else 1, getattr(jax.config, "jax_num_cpu_devices", 0) or 0)


def _make_room() -> int:
    """XLA launches each device's program on a thread of its pool and blocks that thread while earlier programs of the device have to
    run first. So a thread of Python that launches programs may block one a device, and with no more than these none is left for the program
    that all wait for: four a device serve three such threads. XLA takes the size of the pool from NPROC when it makes the devices. Returns
    the size; the pool has at least a thread a device, too."""
    cpus = len(os.sched_getaffinity(0))
    if not {"PJRT_NPROC", "NPROC"} & set(os.environ) and not _clients_exist():
        os.environ["NPROC"] = str(max(32, 4 * _devices_wanted(), cpus))
    named = os.environ.get("PJRT_NPROC", os.environ.get("NPROC", "")).strip()
    return int(named) if named.isdecimal() else cpus


_pool = _make_room()
_warned = False


def _check_pool(devices: int) -> None:
    """Says once that programs which run ahead may hang."""
    global _warned
    if _warned or max(_pool, devices) >= 2 * devices:
        return
    _warned = True
    warnings.warn(
        "spmt.jax: XLA has %d threads for %d CPU devices, and programs that run ahead may wait for each other without end. Import spmt.jax "
        "before JAX makes its devices (jax.devices(), the first array), or set NPROC to %d or more"
        % (max(_pool, devices), devices, 4 * devices),
        RuntimeWarning,
        stacklevel=4,
    )


# ---- the library of handlers


class _Attr(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("id", ctypes.c_int64),
        ("groups", ctypes.c_int),
        ("nranks", ctypes.c_int),
        ("devices", ctypes.POINTER(ctypes.c_int32)),
        ("backend", ctypes.c_char_p),
        ("heap_size", ctypes.c_size_t),
        ("timeout_ms", ctypes.c_int64),
        ("streams", ctypes.c_int),
    ]


_KINDS = ("all_reduce", "permute", "broadcast", "all_gather", "all_to_all", "reduce_scatter", "barrier", "ragged_all_to_all", "put", "get")
_PLATFORMS = {"cpu": ("cpu", "host"), "gpu": ("CUDA", "cuda"), "cuda": ("CUDA", "cuda"), "rocm": ("ROCM", "hip")}
_SUM, _MIN, _MAX = 0, 2, 3

_lock = threading.Lock()  # guards _handlers and _registered
_handlers: ctypes.CDLL | None = None
_registered: set[str] = set()
_groups: dict[int, frozenset[tuple[Any, ...]]] = {}  # the devices of each group of a world that is open, by rank
_ids = itertools.count(random.SystemRandom().getrandbits(40) << 20)  # another process's compiled program names no world here


def _load() -> ctypes.CDLL:
    """libspmt_xla.so, which lies beside libspmt.so."""
    global _handlers
    if _handlers is None:
        name = os.environ.get("SPMT_XLA_LIBRARY") or os.path.join(os.path.dirname(_lib.path), "libspmt_xla.so")
        try:
            library = ctypes.CDLL(name)
        except OSError as error:
            raise ImportError("libspmt_xla.so is not found: %s. Set SPMT_XLA_LIBRARY to its path" % error) from None
        if not hasattr(library, "spmt_xla_open"):
            raise ImportError("%s is no libspmt_xla.so: it has no spmt_xla_open()" % name)
        _handlers = library
        _handlers.spmt_xla_open.argtypes = [ctypes.POINTER(_Attr)]
        _handlers.spmt_xla_close.argtypes = [ctypes.c_int64]
        _handlers.spmt_xla_status.argtypes = [ctypes.c_int64]
        _handlers.spmt_xla_last_error.restype = ctypes.c_char_p
    return _handlers


def _register(platform: str) -> ctypes.CDLL:
    with _lock:
        library = _load()
        if platform not in _registered:
            for kind in [kind + suffix for kind in _KINDS for suffix in ("", "_graph")]:
                stages = {"instantiate": "instantiate", "execute": kind}
                jax.ffi.register_ffi_target(
                    "spmt_" + kind,
                    {stage: jax.ffi.pycapsule(getattr(library, "spmt_xla_" + name)) for stage, name in stages.items()},
                    platform=platform,
                )
            _registered.add(platform)
    return library


# ---- types of values: shapes, and over which axes they vary (shard_map's check_vma)


def _varying(x: Any) -> frozenset[Any]:
    aval = x if hasattr(x, "update") else jax.typeof(x)
    kind = getattr(aval, "mat", None)
    return frozenset(kind.varying if kind is not None else getattr(aval, "vma", ()))


def _aval(aval: Any, shape: Sequence[int], varying: frozenset[Any], weak: bool = False) -> Any:
    keywords: dict[str, Any] = {"shape": tuple(shape), "weak_type": weak}
    if hasattr(aval, "mat"):
        keywords["manual_axis_type"] = aval.mat.update(varying=varying)
    elif hasattr(aval, "vma"):
        keywords["vma"] = varying
    return aval.update(**keywords)


def _vary(x: Any, axes: tuple[Any, ...]) -> Any:
    """x as a value that differs along the axes, if anybody counts that."""
    missing = tuple(a for a in axes if a in _varying(lax.axis_index(axes)) and a not in _varying(x))
    if not missing:
        return x
    return lax.pcast(x, missing, to="varying") if hasattr(lax, "pcast") else lax.pvary(x, missing)  # type: ignore[attr-defined]


# ---- meshes


def _by_rank(mesh: Any, axes: tuple[Any, ...]) -> np.ndarray[Any, Any]:
    """A row of devices for each group along the axes, in order of rank."""
    names = list(mesh.axis_names)
    others = [i for i, name in enumerate(names) if name not in axes]
    order = mesh.devices.transpose(others + [names.index(a) for a in axes])
    return order.reshape(-1, int(np.prod([mesh.shape[a] for a in axes])))


def _left_to_xla(context: Any) -> tuple[Any, ...]:
    """Axes that shard_map does not make manual. XLA would have to divide a call among their devices, which it cannot."""
    mesh = context.mesh
    return tuple(a for a in mesh.axis_names if a not in context.manual_axes and mesh.shape[a] > 1)


def _check_mesh(ctx: Any, name: str, params: dict[str, Any]) -> None:
    """The program has to run on groups of the world: another mesh may have an axis of that name, too."""
    context, axes = ctx.module_context.axis_context, params["axes"]
    mesh = getattr(context, "mesh", None)
    if mesh is None or any(a not in mesh.axis_names for a in axes):
        raise ValueError(
            "spmt %s: axis %s is not one of a shard_map around the call but jax.vmap's, say, which has no devices"
            % (name, ", ".join(repr(a) for a in axes if mesh is None or a not in mesh.axis_names))
        )
    if not isinstance(mesh, jax.sharding.Mesh):
        raise ValueError(
            "spmt %s: shard_map's mesh is abstract, as that of one inside another is, so which devices are along %s, and in which order, is "
            "not known; a call of a world needs one shard_map, of a mesh with devices" % (name, ", ".join(map(repr, axes)))
        )
    if _left_to_xla(context):
        raise ValueError(
            "spmt %s: shard_map leaves %s of its mesh to XLA; a call of a world needs all axes in axis_names"
            % (name, ", ".join(map(repr, _left_to_xla(context))))
        )
    groups = _groups.get(params["world"])
    same = int(np.prod([mesh.shape[a] for a in axes])) == params["n"]
    if groups is not None:
        same = all(tuple(row) in groups for row in _by_rank(mesh, axes))
    if not same:
        raise ValueError(
            "spmt %s: shard_map's mesh has other devices along %s than the world, or in another order"
            % (name, ", ".join(map(repr, axes)))
        )


# ---- primitives: one a kind, all on an array whose first dimension is the ranks where there are parts


# What copy engines move, which no graph has: COLL_ENGINE_LEAST of the library.
_BY_ENGINES = ("permute", "broadcast", "all_gather", "all_to_all")
_ENGINE_LEAST = 128 << 20


def _in_graphs(kind: str, ctx: Any) -> bool:
    most = max((int(np.prod(a.shape)) * a.dtype.itemsize for a in (*ctx.avals_in, *ctx.avals_out)), default=0)
    return kind not in _BY_ENGINES or most < _ENGINE_LEAST


def _call(kind: str, ctx: Any, *operands: Any, graphs: bool, aliases: dict[int, int] | None = None, **attributes: Any) -> Any:
    name = "spmt_" + kind + ("_graph" if graphs and _in_graphs(kind, ctx) else "")
    return jax.ffi.ffi_lowering(name, has_side_effect=True, operand_output_aliases=aliases)(ctx, *operands, **attributes)


def _primitive(
    name: str, kind: str, shape: Callable[..., Sequence[int]], attributes: Callable[..., dict[str, Any]], invariant: bool = False,
    aliases: dict[int, int] | None = None,
) -> Primitive:
    primitive = Primitive("spmt_" + name)

    @primitive.def_abstract_eval
    def _(x: Any, *others: Any, **params: Any) -> Any:
        aval = others[0] if others and name != "put" else x
        varying = frozenset().union(*(_varying(v) for v in (x, *others)))
        # As jax.lax does: of a Python number's type its sums make one of JAX's unless shard_map counts what varies, all_to_all in any case.
        weak = aval.weak_type and kind != "all_to_all" and (kind != "all_reduce" or bool(varying))
        return _aval(aval, shape(aval.shape, **params), varying - set(params["axes"]) if invariant else varying, weak)

    @primitive.def_impl
    def _(*_: Any, **__: Any) -> Any:
        raise RuntimeError("spmt %s: only inside shard_map" % name)

    def lower(ctx: Any, *operands: Any, **params: Any) -> Any:
        _check_mesh(ctx, kind, params)
        values = {"world": np.int64(params["world"]), **attributes(**params)}
        return _call(kind, ctx, *operands, graphs=params["graphs"], aliases=aliases, **values)

    mlir.register_lowering(primitive, lower)
    return primitive


def _same(shape: Sequence[int], **_: Any) -> Sequence[int]:
    return shape


def _none(**_: Any) -> dict[str, Any]:
    return {}


def _op(op: int, **_: Any) -> dict[str, Any]:
    return {"op": np.int64(op)}


_psum_p = _primitive("psum", "all_reduce", _same, lambda **_: {"op": np.int64(_SUM)})
_psum_invariant_p = _primitive("psum_invariant", "all_reduce", _same, lambda **_: {"op": np.int64(_SUM)}, invariant=True)
_vary_p = Primitive("spmt_vary")  # the transpose of a sum, and the other way round
_extreme_p = _primitive("extreme", "all_reduce", _same, _op)
_extreme_invariant_p = _primitive("extreme_invariant", "all_reduce", _same, _op, invariant=True)
_to = lambda to, **_: {"to": np.array(to, np.int64)}  # noqa: E731
_permute_p = _primitive("permute", "permute", _same, _to)
_permute_onto_p = _primitive("permute_onto", "permute", _same, _to, aliases={1: 0})  # of what the result holds where nothing comes
_broadcast_p = _primitive("broadcast", "broadcast", _same, lambda root, **_: {"root": np.int64(root)})
_gather_p = _primitive("all_gather", "all_gather", lambda shape, n, **_: (n, *shape), _none)
_exchange_p = _primitive("all_to_all", "all_to_all", _same, _none)
_scatter_p = _primitive("reduce_scatter", "reduce_scatter", lambda shape, **_: shape[1:], lambda **_: {"op": np.int64(_SUM)})
_ragged_p = _primitive("ragged_all_to_all", "ragged_all_to_all", _same, _none)
_barrier_p = _primitive("barrier", "barrier", _same, _none)
_put_p = _primitive(
    "put", "put", _same, lambda to, start, **_: {"to": np.array(to, np.int64), "start": np.array(start, np.int64)}, aliases={0: 0}
)
_get_p = _primitive(
    "get", "get", _same, lambda of, start, **_: {"of": np.array(of, np.int64), "start": np.array(start, np.int64)}, aliases={1: 0}
)

# Before a barrier without a value, whose call of XLA's own no rule of ours sees: whether it stands where the world's devices are.
_here_p = Primitive("spmt_here")
_here_p.def_abstract_eval(lambda x, **_: x)


def _here_lower(ctx: Any, x: Any, **params: Any) -> list[Any]:
    _check_mesh(ctx, "barrier", params)
    return [x]


mlir.register_lowering(_here_p, _here_lower)

_vary_p.def_abstract_eval(lambda x, *, axes, **_: _aval(x, x.shape, _varying(x) | set(axes)))
_vary_p.def_impl(lambda x, **_: x)
mlir.register_lowering(_vary_p, lambda ctx, x, **_: [x])


def _linear(primitive: Primitive, transpose: Callable[..., Any]) -> None:
    ad.deflinear2(primitive, lambda ct, x, **params: [transpose(ct, **params)])


def _permute_transpose(ct: Any, *, to: tuple[int, ...], **params: Any) -> Any:
    back = [-1] * len(to)
    for source, target in enumerate(to):
        if target >= 0:
            back[target] = source
    return _permute(_vary(ct, params["axes"]), to=tuple(back), **params)


def _broadcast_transpose(ct: Any, *, root: int, **params: Any) -> Any:
    total = _psum_p.bind(_vary(ct, params["axes"]), **params)
    return jnp.where(lax.axis_index(params["axes"]) == root, total, jnp.zeros_like(total))


_linear(_psum_p, lambda ct, **params: _psum_p.bind(ct, **params))
_linear(_psum_invariant_p, lambda ct, **params: _vary_p.bind(ct, **params))
_linear(_vary_p, lambda ct, **params: _psum_invariant_p.bind(_vary(ct, params["axes"]), **params))
_linear(_permute_p, _permute_transpose)
_linear(_broadcast_p, _broadcast_transpose)
_linear(_gather_p, lambda ct, **params: _scatter_p.bind(_vary(ct, params["axes"]), **params))
_linear(_scatter_p, lambda ct, **params: _gather_p.bind(_vary(ct, params["axes"]), **params))
_linear(_exchange_p, lambda ct, **params: _exchange_p.bind(_vary(ct, params["axes"]), **params))
_linear(_barrier_p, lambda ct, **params: ct)


def _batched(primitive: Primitive, into: Callable[[int], int | None], out: int | None) -> None:
    """Moves the mapped dimension to where it changes nothing: `into` of the argument, `out` of the result; None: stays."""

    def rule(args: Sequence[Any], dims: Sequence[int], **params: Any) -> tuple[Any, int]:
        (x,), (dim,) = args, dims
        if out is None:
            return primitive.bind(x, **params), dim
        return primitive.bind(jnp.moveaxis(x, dim, into(dim) or 0), **params), out

    batching.primitive_batchers[primitive] = rule


for _p in (_psum_p, _psum_invariant_p, _vary_p, _extreme_p, _extreme_invariant_p, _permute_p, _broadcast_p, _barrier_p):
    _batched(_p, lambda dim: None, None)
_batched(_gather_p, lambda dim: 0, 1)
_batched(_exchange_p, lambda dim: 1, 1)
_batched(_scatter_p, lambda dim: 1, 0)


def _permute_onto(ctx: Any, x: Any, *, to: tuple[int, ...], **params: Any) -> Any:
    """On a GPU: over zeros, which the kernel leaves where nothing comes."""
    return mlir.lower_fun(lambda v: _permute_onto_p.bind(v, jnp.zeros_like(v), to=to, **params), multiple_results=False)(ctx, x)


def _permute_lower(ctx: Any, x: Any, *, to: tuple[int, ...], **params: Any) -> Any:
    """Zeros where nothing comes, as lax has them; on CPU the handler sees to that."""
    _check_mesh(ctx, "permute", {"to": to, **params})
    if not params["host"] and any(i not in to for i in range(len(to))):
        return _permute_onto(ctx, x, to=to, **params)
    return _call("permute", ctx, x, graphs=params["graphs"], world=np.int64(params["world"]), to=np.array(to, np.int64))


mlir.register_lowering(_permute_p, _permute_lower)


def _is_zero_nan(dtype: Any) -> bool:
    """Of a type that has no zero, in whose place NaN stands; bytes of zeros are its least number."""
    return bool(dtype.name == "float8_e8m0fnu")


def _permute(x: Any, *, to: tuple[int, ...], **params: Any) -> Any:
    y = _permute_p.bind(x, to=to, **params)
    if all(r in to for r in range(len(to))) or not _is_zero_nan(x.dtype):
        return y
    comes = jnp.array([r in to for r in range(len(to))])[_rank(params)]
    return jnp.where(comes, y, jnp.zeros_like(y))


_Zero: Any = ad.Zero  # whose from_primal_value() JAX does not declare

# put and get: linear in arrays and rows. to, of: an entry a rank, -1: none; start: at which row of the other's


def _get(x: Any, size: int, **params: Any) -> Any:
    return _get_p.bind(x, _vary(jnp.zeros((size, *x.shape[1:]), x.dtype), params["axes"]), **params)


def _put_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    y = _put_p.bind(*primals, **params)
    if all(type(t) is ad.Zero for t in tangents):
        return y, _Zero.from_primal_value(y)
    return y, _put_p.bind(*(_vary(ad.instantiate_zeros(t), params["axes"]) for t in tangents), **params)


def _put_transpose(ct: Any, x: Any, rows: Any, *, to: tuple[int, ...], start: tuple[int, ...], **params: Any) -> list[Any]:
    avals = [v.aval if ad.is_undefined_primal(v) else None for v in (x, rows)]
    if type(ct) is ad.Zero:
        return [aval and ad.Zero(aval) for aval in avals]
    ct = _vary(ct, params["axes"])
    back: list[Any] = [None, None]
    shape = (avals[1] or jax.typeof(rows)).shape
    if avals[0]:
        back[0] = _put_p.bind(ct, _vary(jnp.zeros(shape, ct.dtype), params["axes"]), to=to, start=start, **params)
    if avals[1]:
        back[1] = _get(ct, shape[0], of=to, start=start, **params)
    return back


def _get_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    y = _get_p.bind(*primals, **params)
    if all(type(t) is ad.Zero for t in tangents):
        return y, _Zero.from_primal_value(y)
    return y, _get_p.bind(*(_vary(ad.instantiate_zeros(t), params["axes"]) for t in tangents), **params)


def _get_transpose(ct: Any, x: Any, before: Any, *, of: tuple[int, ...], start: tuple[int, ...], **params: Any) -> list[Any]:
    avals = [v.aval if ad.is_undefined_primal(v) else None for v in (x, before)]
    if type(ct) is ad.Zero:
        return [aval and ad.Zero(aval) for aval in avals]
    ct = _vary(ct, params["axes"])
    back: list[Any] = [None, None]
    if avals[0]:
        # Rows that several have got come back from each, and are added: a put can bring them from one alone at a time.
        left, total = set(r for r in range(len(of)) if of[r] >= 0), _vary(jnp.zeros(avals[0].shape, ct.dtype), params["axes"])
        empty = total
        while left:
            turn = {of[r]: r for r in left}
            left -= set(turn.values())
            to = tuple(of[r] if r in turn.values() else -1 for r in range(len(of)))
            total = total + _put_p.bind(empty, ct, to=to, start=start, **params)
        back[0] = total
    if avals[1]:
        comes = jnp.array([r >= 0 for r in of])[_rank(params)]
        back[1] = jnp.where(comes, jnp.zeros_like(ct), ct)
    return back


def _rank(params: dict[str, Any]) -> Any:
    """This device's number among the ranks."""
    return lax.axis_index(params["axes"])


# The same with a start that is known when the program runs, to the rank that names it alone: it travels beside the rows, and each rank
# slices its own array, so that it means what it means to lax.dynamic_slice. Derivatives are those of permutes and slices.


def _turns(other: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """A table of whom each rank sends to, or gets from, as several in which nobody is named twice, by rising rank."""
    left = [r for r in range(len(other)) if other[r] >= 0]
    while left:
        turn: dict[int, int] = {}
        for r in left:
            turn.setdefault(other[r], r)
        left = [r for r in left if turn[other[r]] != r]
        yield tuple(other[r] if turn.get(other[r]) == r else -1 for r in range(len(other)))


def _back(to: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(to.index(r) if r in to else -1 for r in range(len(to)))


def _at_own_start(start: Any, params: dict[str, Any], name: str) -> Any:
    if start.shape or not jnp.issubdtype(start.dtype, jnp.integer):
        raise ValueError("%s: a traced start is an integer, this device's own, not %s%r" % (name, start.dtype, start.shape))
    return _vary(start, params["axes"])


def _put_traced(x: Any, rows: Any, start: Any, to: tuple[int, ...], params: dict[str, Any]) -> Any:
    size = rows.shape[0]
    for turn in _turns(to):
        came, at = _permute(rows, to=turn, **params), _permute(start, to=turn, **params)
        comes = jnp.array([r in turn for r in range(len(turn))])[_rank(params)]
        came = jnp.where(comes, came, lax.dynamic_slice_in_dim(x, at, size, 0))
        x = lax.dynamic_update_slice_in_dim(x, came, at, 0)
    return x


def _get_traced(x: Any, size: int, start: Any, of: tuple[int, ...], params: dict[str, Any]) -> Any:
    total = _vary(jnp.zeros((size, *x.shape[1:]), x.dtype), params["axes"])
    for turn in _turns(of):
        asked = _permute(start, to=turn, **params)
        came = _permute(lax.dynamic_slice_in_dim(x, asked, size, 0), to=_back(turn), **params)
        total = jnp.where(jnp.array([r >= 0 for r in turn])[_rank(params)], came, total)
    return total


def _slices_batch(primitive: Primitive) -> Callable[..., Any]:
    """The mapped dimension goes behind that of the rows."""

    def rule(args: Sequence[Any], dims: Sequence[Any], **params: Any) -> tuple[Any, int]:
        size = next(x.shape[d] for x, d in zip(args, dims) if d is not None)
        whole = [
            jnp.moveaxis(x, d, 1) if d is not None else jnp.broadcast_to(jnp.expand_dims(x, 1), (x.shape[0], size, *x.shape[1:]))
            for x, d in zip(args, dims)
        ]
        return primitive.bind(*(_vary(x, params["axes"]) for x in whole), **params), 1

    return rule


for _p, _jvp, _transpose in ((_put_p, _put_jvp, _put_transpose), (_get_p, _get_jvp, _get_transpose)):
    ad.primitive_jvps[_p] = _jvp
    ad.primitive_transposes[_p] = _transpose
    batching.primitive_batchers[_p] = _slices_batch(_p)


# ragged_all_to_all: linear in operand and output


def _ragged_gathered(operand: Any, output: Any, *tables: Any, **params: Any) -> Any:
    """On a GPU, whose tables no handler can read: each device gathers all operands and takes what is for it."""
    offsets, sizes, into, _ = (t.astype(jnp.int32) for t in tables)
    whole = _gather_p.bind(operand, **params)
    at, count, begin = (_exchange_p.bind(t, **params) for t in (offsets, sizes, into))
    row = jnp.arange(output.shape[0], dtype=jnp.int32)[None, :] - begin[:, None]
    here = (row >= 0) & (row < count[:, None])
    of = jnp.argmax(here, axis=0)
    if not whole.size:
        return output
    rows = whole[of, jnp.take_along_axis(at[:, None] + row, of[None, :], axis=0)[0]]
    return jnp.where(jnp.any(here, axis=0).reshape((-1,) + (1,) * (output.ndim - 1)), rows, output)


def _ragged_lower(ctx: Any, *operands: Any, **params: Any) -> Any:
    _check_mesh(ctx, "ragged_all_to_all", params)
    if params["host"]:
        return _call("ragged_all_to_all", ctx, *operands, graphs=params["graphs"], world=np.int64(params["world"]))
    return mlir.lower_fun(partial(_ragged_gathered, **params), multiple_results=False)(ctx, *operands)


mlir.register_lowering(_ragged_p, _ragged_lower)


def _ragged_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    operand, output, *tables = primals
    y = _ragged_p.bind(operand, output, *tables, **params)
    if all(type(t) is ad.Zero for t in tangents[:2]):
        return y, _Zero.from_primal_value(y)
    dots = [ad.instantiate_zeros(t) for t in tangents[:2]]
    return y, _ragged_p.bind(*(_vary(d, params["axes"]) for d in dots), *tables, **params)


def _ragged_transpose(ct: Any, operand: Any, output: Any, *tables: Any, **params: Any) -> list[Any]:
    offsets, sizes, into, wanted = tables
    undefined = ad.is_undefined_primal
    if type(ct) is ad.Zero:
        return [ad.Zero(v.aval) if undefined(v) else None for v in (operand, output)] + [None] * 4
    ct = _vary(ct, params["axes"])
    came_at, from_at = _exchange_p.bind(into, **params), _exchange_p.bind(offsets, **params)
    back: list[Any] = [None, None]
    if undefined(operand):
        empty = _vary(jnp.zeros(operand.aval.shape, operand.aval.dtype), params["axes"])
        back[0] = _ragged_p.bind(ct, empty, came_at, wanted, from_at, sizes, **params)
    if undefined(output):
        rows = jnp.arange(ct.shape[0])[:, None]
        taken = jnp.any((rows >= came_at) & (rows < came_at + wanted), axis=1)
        back[1] = jnp.where(taken.reshape((-1,) + (1,) * (ct.ndim - 1)), jnp.zeros_like(ct), ct)
    return [*back, None, None, None, None]


def _ragged_batch(args: Sequence[Any], dims: Sequence[Any], **params: Any) -> tuple[Any, int]:
    """Call by call: tables may differ."""
    size = next(x.shape[d] for x, d in zip(args, dims) if d is not None)
    calls = [[x if d is None else lax.index_in_dim(x, i, d, keepdims=False) for x, d in zip(args, dims)] for i in range(size)]
    return jnp.stack([_ragged_p.bind(*call, **params) for call in calls]), 0


ad.primitive_jvps[_ragged_p] = _ragged_jvp
ad.primitive_transposes[_ragged_p] = _ragged_transpose
batching.primitive_batchers[_ragged_p] = _ragged_batch

# ---- forms of jax.lax


def _integer(value: Any, what: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError("%s is %r, not an integer" % (what, value)) from None


def _pairs_of(perm: Any) -> list[tuple[int, ...]]:
    """perm as pairs of integers."""
    what = "perm is %r, not a list of pairs of integers, (source, target)" % (perm,)
    try:
        pairs = [tuple(operator.index(device) for device in pair) for pair in perm]
    except TypeError:
        raise TypeError(what) from None
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError(what)
    return pairs


def _entries(value: Any, n: int, order: tuple[int, ...], what: str) -> tuple[int, ...]:
    """A number, or one a device in the order of the mesh, by rank."""
    each = list(value) if isinstance(value, (list, tuple)) or np.ndim(value) else [value] * n
    if len(each) != n:
        raise ValueError("%s has %d entries for %d devices" % (what, len(each), n))
    by_rank = [0] * n
    for device, one in enumerate(each):
        by_rank[order[device]] = _integer(one, what)
    return tuple(by_rank)


def _pairs(perm: Sequence[tuple[int, int]], n: int, order: tuple[int, ...], one: int) -> tuple[int, ...]:
    """Pairs of source and target by the rank of one of them, of which none may come twice: the other's."""
    other, pairs = [-1] * n, _pairs_of(perm)
    for pair in pairs:
        if not all(0 <= device < n for device in pair) or other[order[pair[one]]] >= 0:
            raise ValueError("perm %r: a %s is there twice, or a device is none of %d" % (pairs, ("source", "target")[one], n))
        other[order[pair[one]]] = order[pair[1 - one]]
    return tuple(other)


def _dimension(axis: Any, ndim: int, what: str) -> int:
    axis = _integer(axis, what)
    if not -ndim <= axis < ndim:
        raise ValueError("%s is dimension %d of an array of %d" % (what, axis, ndim))
    return axis % ndim


def _split(x: Any, axis: int, n: int, tiled: bool, what: str) -> Any:
    """The n parts along a dimension, in front."""
    at = _dimension(axis, x.ndim, what)
    if x.shape[at] % n if tiled else x.shape[at] != n:
        raise ValueError("dimension %d is %d, which does not split among %d devices%s" % (at, x.shape[at], n, "" if tiled else " untiled"))
    if tiled:
        x = x.reshape(x.shape[:at] + (n, x.shape[at] // n) + x.shape[at + 1 :])
    return jnp.moveaxis(x, at, 0)


def _targets(perm: Sequence[tuple[int, int]], n: int, order: tuple[int, ...]) -> tuple[int, ...]:
    """Pairs of source and target, as the target of each rank. lax counts devices as the mesh does here, whatever order the axes
    are named in: order has their ranks. A negative number counts from the end, as there."""
    to, pairs = [-1] * n, _pairs_of(perm)
    for source, target in pairs:
        if -n <= source < n and -n <= target < n:
            source, target = source % n, target % n
        if not (0 <= source < n and 0 <= target < n) or to[order[source]] >= 0 or order[target] in to:
            raise ValueError("perm %r: a device is there twice, or is none of %d" % (pairs, n))
        to[order[source]] = order[target]
    return tuple(to)


def _gather(x: Any, axis: int, tiled: bool, params: dict[str, Any]) -> Any:
    at = _dimension(axis, x.ndim + (not tiled), "axis")
    y = jnp.moveaxis(_gather_p.bind(x, **params), 0, at)
    return y.reshape(x.shape[:at] + (params["n"] * x.shape[at],) + x.shape[at + 1 :]) if tiled else y


def _scatter(x: Any, dimension: int, tiled: bool, params: dict[str, Any]) -> Any:
    return _scatter_p.bind(_split(x, dimension, params["n"], tiled, "scatter_dimension"), **params)


def _exchange(x: Any, split_axis: int, concat_axis: int, tiled: bool, params: dict[str, Any]) -> Any:
    at = _dimension(concat_axis, x.ndim, "concat_axis")
    y = jnp.moveaxis(_exchange_p.bind(_split(x, split_axis, params["n"], tiled, "split_axis"), **params), 0, at)
    return y.reshape(y.shape[:at] + (y.shape[at] * y.shape[at + 1],) + y.shape[at + 2 :]) if tiled else y


def _is_extended(dtype: Any) -> bool:
    """As of keys of jax.random, which numpy does not know."""
    return bool(jax.dtypes.issubdtype(dtype, jax.dtypes.extended))


def _check_numbers(name: str, x: Any) -> None:
    if _is_extended(x.dtype):
        raise TypeError("%s: values of %s are no numbers" % (name, x.dtype))


def _check_rows(name: str, x: Any, rows: Any, others: tuple[int, ...], start: tuple[int, ...]) -> None:
    if x.ndim < 1 or len(rows.shape) != x.ndim or rows.shape[1:] != x.shape[1:] or rows.shape[0] < 0 or x.dtype != rows.dtype:
        raise ValueError("%s: an array of %s%r, rows of %s%r" % (name, x.dtype, x.shape, rows.dtype, rows.shape))
    for other, at in zip(others, start):
        if other >= 0 and not 0 <= at <= x.shape[0] - rows.shape[0]:
            raise ValueError("%s: %d rows from row %d on are not in an array of %d" % (name, rows.shape[0], at, x.shape[0]))


# ---- worlds


def _tokens() -> list[Any]:
    """What JAX keeps of this thread's programs that print or call back; none if this JAX keeps it elsewhere."""
    try:
        from jax._src.dispatch import runtime_tokens

        return [*runtime_tokens.current_tokens.values(), *runtime_tokens.output_runtime_tokens.values()]
    except (ImportError, AttributeError):
        return []


def _wait_for(tokens: list[Any]) -> None:
    for token in tokens:
        with contextlib.suppress(Exception):
            token.block_until_ready()


def _effects() -> None:
    """jax.effects_barrier(), which Ctrl-C ends: as that looks at no signal, another thread waits. It would find none of this thread's
    programs by itself, so it is given them."""
    tokens = _tokens()
    if tokens:
        helper = threading.Thread(target=_wait_for, args=(tokens,), name="spmt.jax effects", daemon=True)
        helper.start()
        while helper.is_alive():
            helper.join(0.1)
    with contextlib.suppress(Exception):
        jax.effects_barrier()


def _settle() -> None:
    """Waits until programs that were enqueued have run; those that fail tell whoever looks at their results. Results that nobody keeps are
    no live arrays: of their programs those are waited for that print or call back, and that this thread has launched."""
    for array in jax.live_arrays():
        with contextlib.suppress(Exception):
            array.block_until_ready()
    _effects()


def _check_timeout(timeout: Any) -> None:
    try:
        enough = timeout >= 0
    except TypeError:
        raise TypeError("timeout is %r, not a number of seconds" % (timeout,)) from None
    if not enough:
        raise ValueError("timeout is %r seconds, not 0 or more" % timeout)


def _check_world_mesh(mesh: Any) -> None:
    if not isinstance(mesh, jax.sharding.Mesh):
        raise TypeError("mesh is %r, not a jax.sharding.Mesh of devices: a world has a rank on each" % (mesh,))
    if not mesh.devices.size:
        raise ValueError("mesh is %r, which has no devices" % (mesh,))


def _heap_size(value: Any) -> int:
    size, most = _integer(value, "heap_size"), ctypes.c_size_t(-1).value
    if not 0 <= size <= most:
        raise ValueError("heap_size is %d, not a number of bytes from 0 to %d" % (size, most))
    return size


class World:
    """Collectives along one axis of a mesh, or several. Made by ``world``; closed by ``with`` or ``close``."""

    def __init__(self, mesh: Any, axis: Any, timeout: float, heap_size: int, graphs: bool = False) -> None:
        _check_world_mesh(mesh)
        heap_size = _heap_size(heap_size)
        self.mesh = mesh
        self.axes: tuple[Any, ...] = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
        names = list(mesh.axis_names)
        unknown = [a for a in self.axes if a not in names]
        if unknown or not self.axes or len(set(self.axes)) != len(self.axes):
            raise ValueError("axis is %r; the mesh has %r" % (axis, tuple(names)))
        _check_timeout(timeout)
        groups = _by_rank(mesh, self.axes)
        self.nranks = groups.shape[1]
        first = groups.flat[0]
        if first.platform not in _PLATFORMS:
            raise Error(ERR_UNSUPPORTED, "spmt.jax: no platform %s" % first.platform)
        if any(d.process_index != jax.process_index() for d in groups.flat):
            raise Error(ERR_UNSUPPORTED, "spmt.jax: devices of other processes are in the mesh")
        self._platform, backend = _PLATFORMS[first.platform]
        if self._platform == "CUDA" and "rocm" in getattr(first.client, "platform_version", "").lower():
            self._platform, backend = _PLATFORMS["rocm"]
        self._library = _register(self._platform)
        if backend == "host":
            _check_pool(first.client.device_count())
        ordinals = [d.id if backend == "host" else d.local_hardware_id for d in groups.flat]
        id = next(_ids)
        attr = _Attr(
            ctypes.sizeof(_Attr), id, len(groups), self.nranks, (ctypes.c_int32 * len(ordinals))(*ordinals), backend.encode(),
            heap_size, math.ceil(min(timeout, 1e15) * 1000), 0,
        )
        code = self._library.spmt_xla_open(ctypes.byref(attr))
        if code < 0:
            raise Error(code, self._library.spmt_xla_last_error().decode(errors="replace"))
        self._id: int | None = id  # not before it is open: __del__ warns of one that nobody closes
        self._pid = os.getpid()
        _groups[id] = frozenset(tuple(row) for row in groups)
        self._params = {
            "world": id, "axes": self.axes, "n": self.nranks, "host": backend == "host", "order": self._order(), "graphs": graphs,
        }

    def _order(self) -> tuple[int, ...]:
        """The rank of each device of a group, in the order of the mesh."""
        names = [a for a in self.mesh.axis_names if a in self.axes]
        counts = np.arange(self.nranks).reshape([self.mesh.shape[a] for a in names])
        return tuple(int(i) for i in np.argsort(counts.transpose([names.index(a) for a in self.axes]).reshape(-1)))

    def __repr__(self) -> str:
        return "<spmt.jax.World of %d devices along %s%s>" % (self.nranks, ", ".join(map(str, self.axes)), "" if self._id else ", closed")

    def __del__(self) -> None:
        if getattr(self, "_id", None) is not None and os.getpid() == self._pid:  # programs that were compiled with it may run still
            warnings.warn("%r was not closed, and keeps its ranks" % self, ResourceWarning, stacklevel=2, source=self)

    def __enter__(self) -> World:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.close()
            return
        with contextlib.suppress(Error):  # what was raised says more
            self._end(settle=False)

    def close(self) -> None:
        """Ends the world, when what was enqueued is done. Programs that were compiled with it fail with FAILED_PRECONDITION then.
        What ``check`` would raise is raised when it has ended. Where an exception leaves the block of ``with``, nothing is waited for."""
        self._end(settle=True)

    def _end(self, settle: bool) -> None:
        id = self._id
        if id is None:
            return
        if os.getpid() != self._pid:  # nothing that runs is here, so there is nothing to wait for either
            self._id = None
            return
        failure = None
        try:  # Ctrl-C ends what is waited for, and the world ends all the same
            self._id = None
            if settle:
                _settle()
            failure = self._failure(id)
        finally:
            self._library.spmt_xla_close(id)
            _groups.pop(id, None)
        if failure is not None:
            raise failure

    def _failure(self, id: int) -> Error | None:
        code = self._library.spmt_xla_status(id)
        return Error(code, self._library.spmt_xla_last_error().decode(errors="replace")) if code < 0 else None

    def check(self) -> None:
        """Raises ``spmt.Error`` if a call has failed on a GPU since its handler returned, and no later call has raised that.
        Results of calls that are still under way do not count: see to them first, by ``jax.block_until_ready``."""
        failure = self._failure(self._check_open())
        if failure is not None:
            raise failure

    def _check_open(self) -> int:
        if self._id is None:
            raise ValueError("spmt.jax: the world is closed")
        if os.getpid() != self._pid:
            raise Error(ERR_FORKED, "spmt.jax: the world is that of process %d, which has forked this one" % self._pid)
        return self._id

    def _each(self, x: Any, fn: Callable[[Any], Any]) -> Any:
        self._check_open()
        return jax.tree.map(lambda leaf: fn(_vary(jnp.asarray(leaf), self.axes)), x)

    def _reduce(self, name: str, plain: Primitive, invariant: Primitive, x: Any, **more: Any) -> Any:
        """A result is the same on all devices, and says so where that counts."""
        _check_numbers(name, x)
        primitive = invariant if set(self.axes) <= _varying(x) else plain
        return primitive.bind(x, **self._params, **more)

    def _arrays(self, name: str, *args: Any) -> list[Any]:
        """Of calls that take no trees."""
        for x in args:
            if not jax.tree_util.all_leaves([x]):
                raise TypeError("%s: %r is not an array" % (name, x))
        return [self._each(x, lambda leaf: leaf) for x in args]

    def psum(self, x: Any) -> Any:
        """The sum over the axis, as ``jax.lax.psum``: of what is no traced value a product, so that psum(1) is the number of devices."""
        self._check_open()

        def one(leaf: Any) -> Any:
            is_bool = isinstance(leaf, bool) or getattr(leaf, "dtype", None) == np.bool_
            if not isinstance(leaf, jax.core.Tracer):
                return lax.psum(np.asarray(leaf, np.int32) if is_bool else leaf, self.axes)  # of a bool lax makes a traced value
            leaf = _vary(leaf.astype(np.int32) if is_bool else leaf, self.axes)
            return self._reduce("psum", _psum_p, _psum_invariant_p, leaf)

        return jax.tree.map(one, x)

    def pmax(self, x: Any) -> Any:
        """The maximum over the axis, as ``jax.lax.pmax``. It has no derivative, as that has none."""
        return self._each(x, lambda leaf: self._reduce("pmax", _extreme_p, _extreme_invariant_p, leaf, op=_MAX))

    def pmin(self, x: Any) -> Any:
        """The minimum over the axis, as ``jax.lax.pmin``."""
        return self._each(x, lambda leaf: self._reduce("pmin", _extreme_p, _extreme_invariant_p, leaf, op=_MIN))

    def ppermute(self, x: Any, perm: Sequence[tuple[int, int]]) -> Any:
        """Sends x along pairs of source and target, as ``jax.lax.ppermute``; zeros where nothing comes."""
        to = _targets(perm, self.nranks, self._params["order"])
        return self._each(x, lambda leaf: _permute(leaf, to=to, **self._params))

    def permute(self, x: Any, shift: int) -> Any:
        """x of the device that is ``shift`` before this one, round the axis: ``ppermute`` from each i to i + shift."""
        shift = _integer(shift, "shift")
        return self.ppermute(x, [(i, (i + shift) % self.nranks) for i in range(self.nranks)])

    def all_reduce(self, x: Any, op: str = "sum") -> Any:
        """``psum``, ``pmax`` or ``pmin``, by op: "sum", "max" or "min"."""
        by_op = {"sum": self.psum, "max": self.pmax, "min": self.pmin}
        if not isinstance(op, str) or op not in by_op:
            raise ValueError("op is %r: there are sum, max and min" % (op,))
        return by_op[op](x)

    def broadcast(self, x: Any, root: int) -> Any:
        """x of the device whose index is root, on all."""
        root = _integer(root, "root")
        if not 0 <= root < self.nranks:
            raise ValueError("root is %d, of %d devices" % (root, self.nranks))
        return self._each(x, lambda leaf: _broadcast_p.bind(leaf, root=root, **self._params))

    def put(self, x: Any, rows: Any, perm: Sequence[tuple[int, int]], start: Any = 0) -> Any:
        """x, with ``rows`` of other devices written into it: of each pair of source and target in perm the source's rows are in
        the target's x from row ``start`` on (a number, or one for each source). Rows are along the first dimension. A source is in
        perm once; several may write to one target, each to rows of its own.

        A traced start is this device's own, as a source, and is clamped as that of ``jax.lax.dynamic_update_slice``; of two sources that
        write the same rows then the one of the higher index has them."""
        to = _pairs(perm, self.nranks, self._params["order"], 0)
        x, rows = self._arrays("put", x, rows)
        if isinstance(start, jax.core.Tracer):
            _check_rows("put", x, rows, to, (0,) * self.nranks)
            return _put_traced(x, rows, _at_own_start(start, self._params, "put"), to, self._params)
        at = _entries(start, self.nranks, self._params["order"], "start")
        _check_rows("put", x, rows, to, at)
        return _put_p.bind(x, rows, to=to, start=at, **self._params)

    def get(self, x: Any, perm: Sequence[tuple[int, int]], start: Any, size: int) -> Any:
        """Rows of other devices' x: each target in perm gets ``size`` rows of its source's x from row ``start`` on (a number, or one for
        each target); zeros where none comes. A target is in perm once; a source may be there for several.

        A traced start is this device's own, as a target, and is clamped as that of ``jax.lax.dynamic_slice``."""
        of, size = _pairs(perm, self.nranks, self._params["order"], 1), _integer(size, "size")
        (x,) = self._arrays("get", x)
        if isinstance(start, jax.core.Tracer):
            _check_rows("get", x, jax.ShapeDtypeStruct((size, *x.shape[1:]), x.dtype), of, (0,) * self.nranks)
            return _get_traced(x, size, _at_own_start(start, self._params, "get"), of, self._params)
        at = _entries(start, self.nranks, self._params["order"], "start")
        _check_rows("get", x, jax.ShapeDtypeStruct((size, *x.shape[1:]), x.dtype), of, at)
        return _get(x, size, of=of, start=at, **self._params)

    def all_gather(self, x: Any, axis: int = 0, tiled: bool = False) -> Any:
        """x of all devices, in a new dimension, or tiled in one behind another, as ``jax.lax.all_gather``."""

        return self._each(x, lambda leaf: _gather(leaf, axis, tiled, self._params))

    def psum_scatter(self, x: Any, scatter_dimension: int = 0, tiled: bool = False) -> Any:
        """Each device's part of the sum, as ``jax.lax.psum_scatter``."""

        def one(leaf: Any) -> Any:
            _check_numbers("psum_scatter", leaf)
            return _scatter(leaf, scatter_dimension, tiled, self._params)

        return self._each(x, one)

    def all_to_all(self, x: Any, split_axis: int, concat_axis: int, tiled: bool = False) -> Any:
        """Part i of every device to device i, as ``jax.lax.all_to_all``."""

        return self._each(x, lambda leaf: _exchange(leaf, split_axis, concat_axis, tiled, self._params))

    def ragged_all_to_all(self, operand: Any, output: Any, input_offsets: Any, send_sizes: Any, output_offsets: Any, recv_sizes: Any) -> Any:
        """Rows of as many as each pair wants, as ``jax.lax.ragged_all_to_all``."""
        args = (operand, output, input_offsets, send_sizes, output_offsets, recv_sizes)
        return _ragged_p.bind(*self._arrays("ragged_all_to_all", *args), **self._params)

    def barrier(self, x: Any = None) -> Any:
        """Until all devices have come: what is returned, x, is there when they have. Without x the program waits alone, and once for all
        entries of a jax.vmap."""
        if x is None:
            self._check_open()
            size = lax.psum(1, self.axes)  # outside of shard_map that raises
            if size != self.nranks:
                raise ValueError(
                    "spmt barrier: %d along %s, not the world's %d devices: another mesh's axis, or a jax.vmap's of that name"
                    % (size, ", ".join(map(repr, self.axes)), self.nranks)
                )
            kind = "spmt_barrier" + ("_graph" if self._params["graphs"] else "")
            call = jax.ffi.ffi_call(kind, jax.ShapeDtypeStruct((1,), np.int32), has_side_effect=True)
            call(_here_p.bind(jnp.zeros(1, np.int32), **self._params), world=np.int64(self._params["world"]))
            return None
        return self._each(x, lambda leaf: _barrier_p.bind(leaf, **self._params))


def world(mesh: Any, axis: Any = None, *, timeout: float = 0, heap_size: int = 2 << 20, graphs: bool = False) -> World:
    """Ranks on the devices of a mesh, for collectives along an axis (a name, several, or all: None).

    timeout: seconds that a call waits for the other devices, 10 by default. heap_size: bytes of symmetric memory a device, of
    which these calls use none. graphs: on GPUs XLA may put these calls into command buffers, but those that move 128 MiB and more a
    device and are faster without; after a call there has failed their programs have to be compiled again, in a new world.
    """
    _check_world_mesh(mesh)
    return World(mesh, tuple(mesh.axis_names) if axis is None else axis, timeout, heap_size, graphs)


# ---- in place of jax.lax's own

_PATCH_TIMEOUT = 600.0
_patches: list["_Patch"] = []  # the last is the one that counts
_replaced: set[tuple[str, str]] = set()  # of which platforms and primitives our rule stands in place of JAX's


class _Patch:
    """Worlds by mesh and axes, made when a program is compiled."""

    def __init__(self, timeout: float, graphs: bool) -> None:
        self.timeout = timeout
        self.graphs = graphs
        self.worlds: dict[Any, World] = {}
        self.lock = threading.Lock()

        self.closed = False

    def world(self, mesh: Any, axes: tuple[Any, ...]) -> World | None:
        """None: the block has ended while another thread compiled."""
        with self.lock:
            if not self.closed and (mesh, axes) not in self.worlds:
                self.worlds[mesh, axes] = World(mesh, axes, self.timeout, 2 << 20, self.graphs)
            return self.worlds.get((mesh, axes))

    def close(self, settle: bool) -> None:
        with self.lock:
            self.closed = True
            worlds = list(self.worlds.values())
            self.worlds.clear()
        with contextlib.ExitStack() as stack:  # all of them, whichever says at its end that a call had failed
            for one in worlds:
                stack.callback(one._end, settle)


def _tables(*args: Any) -> tuple[Any, ...]:
    return tuple(a if a.dtype in (np.int32, np.int64) else a.astype(np.int32) for a in args)


# The forms of JAX's primitives: from a world's parameters, arguments and the primitive's own parameters.
_forms: dict[str, Callable[..., Any]] = {
    "psum_p": lambda p, x, **_: _psum_p.bind(x, **p),
    "psum_invariant_p": lambda p, x, **_: _psum_p.bind(x, **p),
    "pmax_p": lambda p, x, **_: _extreme_p.bind(x, op=_MAX, **p),
    "pmin_p": lambda p, x, **_: _extreme_p.bind(x, op=_MIN, **p),
    "ppermute_p": lambda p, x, perm, **_: _permute(x, to=_targets(perm, p["n"], p["order"]), **p),
    "pbroadcast_p": lambda p, x, source, **_: _broadcast_p.bind(x, root=int(source), **p),
    "all_gather_p": lambda p, x, all_gather_dimension, tiled, **_: _gather(x, all_gather_dimension, tiled, p),
    "all_gather_invariant_p": lambda p, x, all_gather_dimension, tiled, **_: _gather(x, all_gather_dimension, tiled, p),
    "reduce_scatter_p": lambda p, x, scatter_dimension, tiled, **_: _scatter(x, scatter_dimension, tiled, p),
    "all_to_all_p": lambda p, x, split_axis, concat_axis, **_: _exchange(x, split_axis, concat_axis, True, p),
    "ragged_all_to_all_p": lambda p, x, y, *tables, **_: _ragged_p.bind(x, y, *_tables(*tables), **p),
}


def _can(avals: Sequence[Any], primitive: str) -> bool:
    """Whether ours has it for this type."""
    if _is_extended(avals[0].dtype):
        return False
    dtype = np.dtype(avals[0].dtype)
    summed = dtype.kind in "biu" or dtype.name in ("float8_e4m3fn", "float8_e5m2")
    if dtype.itemsize == 1 and not summed and primitive in ("psum_p", "psum_invariant_p", "pmax_p", "pmin_p", "reduce_scatter_p"):
        return False
    if dtype.kind == "c" and primitive in ("pmax_p", "pmin_p") or dtype.kind == "b" and primitive == "reduce_scatter_p":
        return False  # JAX says so itself
    return dtype.kind in "biufcV" and "int4" not in dtype.name and "int2" not in dtype.name and "float4" not in dtype.name


def _rule(primitive: str, own: Callable[..., Any]) -> Callable[..., Any]:
    """own: JAX's."""
    form = _forms[primitive]

    def lower(ctx: Any, *args: Any, **params: Any) -> Any:
        axes = params.get("axes", params.get("axis_name"))
        axes = tuple(axes) if isinstance(axes, (tuple, list)) else (axes,)
        mesh = getattr(ctx.module_context.axis_context, "mesh", None)
        patches = list(_patches)  # another thread may end the last one
        ours = (
            patches
            and isinstance(mesh, jax.sharding.Mesh)
            and axes
            and all(a in mesh.axis_names for a in axes)
            and any(mesh.shape[a] > 1 for a in axes)  # XLA takes calls of one device out
            and not _left_to_xla(ctx.module_context.axis_context)
            and params.get("axis_index_groups") is None
            and _can(ctx.avals_in, primitive)
        )
        world = patches[-1].world(mesh, axes) if ours else None
        if world is None:
            return own(ctx, *args, **params)
        return mlir.lower_fun(partial(form, world._params), multiple_results=False)(ctx, *args, **params)

    lower.spmt_own = own  # type: ignore[attr-defined]
    return lower


def _replace(platform: str) -> None:
    """Our rules before those of JAX, which they call where they are not meant."""
    from jax._src.interpreters import mlir as rules
    from jax._src.lax import parallel

    for name in _forms:
        primitive = getattr(parallel, name, None)
        if primitive is None or (platform, name) in _replaced:
            continue
        entry = rules._platform_specific_lowerings[platform].get(primitive) or rules._lowerings.get(primitive)
        if entry is None:
            continue
        _replaced.add((platform, name))
        own: Any = getattr(entry, "rule", entry)
        own = getattr(own, "spmt_own", own)  # of this module before it was loaded anew
        mlir.register_lowering(primitive, _rule(name, own), platform=platform)


@contextlib.contextmanager
def patch(*, timeout: float = _PATCH_TIMEOUT, graphs: bool = False) -> Iterator[None]:
    """Has psum, pmean, pmax, pmin, ppermute, all_gather, all_to_all, psum_scatter and ragged_all_to_all of ``jax.lax``, and on
    GPUs pbroadcast, which JAX does not have on CPU, take our calls inside ``shard_map``, derivatives included, until the block ends.

    It changes how they are compiled: programs that were compiled before are compiled anew, now and behind the block.
    timeout: seconds that a call waits for the other devices, 600 by default: JAX's own wait for as long as a device computes.
    graphs: as of ``world``; after a call has failed there, leave the block and begin another.

    It holds for the whole process: what other threads compile meanwhile takes our calls, too. So no other thread may compile or run such
    programs when the block ends, or they fail with FAILED_PRECONDITION, and are compiled anew at their next call.

    With ``axis_index_groups``, for types that the library does not have, along axes of one device, and where ``shard_map`` leaves
    axes to XLA or has an abstract mesh, JAX's own are taken.
    """
    _check_timeout(timeout)
    for platform in {"cpu": ["cpu"], "gpu": ["cuda", "rocm"]}.get(jax.default_backend(), []):
        _replace(platform)
    one = _Patch(timeout or _PATCH_TIMEOUT, graphs)
    jax.clear_caches()
    _patches.append(one)

    def end(settle: bool) -> None:
        _patches.remove(one)
        jax.clear_caches()
        one.close(settle)

    try:
        yield
    except BaseException:
        with contextlib.suppress(Error):  # what was raised says more
            end(settle=False)
        raise
    end(settle=True)
