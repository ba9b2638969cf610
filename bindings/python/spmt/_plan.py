# SPDX-License-Identifier: MIT
"""Plans: collectives written once for all ranks, as a list of operations for each block of threads."""

from __future__ import annotations

import ctypes
import errno
import weakref
from types import TracebackType
from typing import Any, Iterable, NamedTuple, Sequence, Union

import numpy as np

from ._arrays import Symmetric, symmetric
from ._comm import _OPS, Comm, _number, _type
from ._lib import Error, PlanAttr, PlanInfo, PlanOp, PlanTrial, Unique, check, lib, whole

_KINDS = {
    name: number
    for number, name in enumerate(
        "put get copy reduce signal wait signal_relaxed wait_relaxed put_packets unpack_packets send_packets_on reduce_packets"
        " barrier release acquire".split()
    )
}
_BUFFERS = {name: number for number, name in enumerate("input output scratch".split())}
_FORMS = {name: number for number, name in enumerate("json text svg".split())}
_TERMS = 16
_ERANGE = -34


class Chunk(NamedTuple):
    """Chunks ``index`` to ``index + count - 1`` of a rank's buffer. Made by ``Plan.input``, ``Plan.output`` and ``Plan.scratch``."""

    rank: int
    buffer: str
    index: int  # type: ignore[assignment]  # a tuple has methods of these names
    count: int = 1  # type: ignore[assignment]


Chunks = Union[Chunk, Iterable[Chunk]]


def _listed(chunks: Chunks) -> list[Chunk]:
    listed = [chunks] if isinstance(chunks, Chunk) else list(chunks)
    for one in listed:
        if not isinstance(one, Chunk):
            raise TypeError("%r is no Chunk: Plan.input, output and scratch make them" % (one,))
    return listed


def _int(value: int, what: str) -> int:
    """ctypes would cut it."""
    value = whole(value, what)
    if not -(1 << 31) <= value < 1 << 31:
        raise ValueError("%s is %d, beyond any" % (what, value))
    return value


def _part(part: tuple[int, int]) -> tuple[int, int]:
    try:
        i, n = part
    except (TypeError, ValueError) as error:
        raise type(error)("part is %r, which is not two numbers: (i, n), the ith of n parts" % (part,)) from None
    return _int(i, "the part"), _int(n, "the number of parts")


def _write_chunks(to: Any, chunks: Sequence[Chunk]) -> None:
    for place, c in zip(to, chunks):
        index, count = whole(c.index, "the chunk's index"), whole(c.count, "the chunk's count")
        if min(index, count) < 0 or max(index, count) >= 1 << 32:
            raise ValueError("%r: index and count are from 0 to 2**32 - 1" % (c,))
        place.rank, place.buffer = _int(c.rank, "the chunk's rank"), _number(_BUFFERS, c.buffer, "the buffer")
        place.index, place.count = index, count


class Plan(Unique):
    """A collective of ``nranks`` ranks. Each rank has an input, an output and a scratch buffer, cut into so many chunks of one size, which
    is decided when the plan runs.

    Each method that adds an operation puts it behind those of ``block`` of ``rank``; what cannot be raises ``Error`` with a sentence.
    ``part=(i, n)`` makes it the ith of n parts of all chunks named. ``input``, ``output`` and ``scratch`` name chunks.

    ``collective`` is ``"allreduce"``, ``"allgather"``, ``"reducescatter"``, ``"alltoall"``, or any other word. With ``in_place`` input and
    output are one buffer. ``max_bytes`` of the input, 0: no limit.
    """

    _instead = ": from_json makes another one of what to_json has written"

    def __init__(
        self,
        name: str,
        collective: str,
        nranks: int,
        *,
        input_chunks: int,
        output_chunks: int,
        scratch_chunks: int = 0,
        in_place: bool = False,
        min_bytes: int = 0,
        max_bytes: int = 0,
    ) -> None:
        input_chunks, output_chunks = whole(input_chunks, "input_chunks"), whole(output_chunks, "output_chunks")
        scratch_chunks = whole(scratch_chunks, "scratch_chunks")
        min_bytes, max_bytes = whole(min_bytes, "min_bytes"), whole(max_bytes, "max_bytes")
        if min(input_chunks, output_chunks, scratch_chunks, min_bytes, max_bytes) < 0:
            raise ValueError("numbers of chunks and bytes are not negative")
        if max(input_chunks, output_chunks, scratch_chunks) >= 1 << 32:
            raise ValueError("a buffer has less than 2**32 chunks")
        if max(min_bytes, max_bytes) >= 1 << 64:
            raise ValueError("numbers of bytes are less than 2**64")
        if "\0" in name + collective:
            raise ValueError("a name ends at its NUL: %r" % (name if "\0" in name else collective))
        attr = PlanAttr(
            size=ctypes.sizeof(PlanAttr), name=name.encode(), collective=collective.encode(), nranks=_int(nranks, "nranks"), in_place=bool(in_place),
            input_chunks=input_chunks, output_chunks=output_chunks, scratch_chunks=scratch_chunks, min_bytes=min_bytes,
            max_bytes=max_bytes,
        )
        handle = ctypes.c_void_p()
        check(lib.spmt_plan_create(ctypes.byref(attr), ctypes.byref(handle)))
        self._own(handle)

    def _own(self, handle: ctypes.c_void_p) -> None:
        self._handle = handle.value
        self._free = weakref.finalize(self, lib.spmt_plan_destroy, handle.value)
        info = PlanInfo(size=ctypes.sizeof(PlanInfo))
        check(lib.spmt_plan_about(self._handle, ctypes.byref(info)))
        a = info.attr
        self.name, self.collective, self.nranks = a.name.decode(), a.collective.decode(), int(a.nranks)
        self.in_place, self.min_bytes, self.max_bytes = bool(a.in_place), int(a.min_bytes), int(a.max_bytes)
        self.input_chunks, self.output_chunks = int(a.input_chunks), int(a.output_chunks)
        self.scratch_chunks = int(a.scratch_chunks)

    def __repr__(self) -> str:
        return "<spmt.Plan %s: %s of %d ranks, %d operations>" % (self.name, self.collective, self.nranks, len(self))

    def __len__(self) -> int:
        """How many operations there are."""
        info = PlanInfo(size=ctypes.sizeof(PlanInfo))
        check(lib.spmt_plan_about(self._handle, ctypes.byref(info)))
        return int(info.ops)

    # chunks

    def input(self, rank: int, index: int, count: int = 1) -> Chunk:
        """Chunks of a rank's input."""
        return Chunk(rank, "input", index, count)

    def output(self, rank: int, index: int, count: int = 1) -> Chunk:
        """Chunks of a rank's output."""
        return Chunk(rank, "output", index, count)

    def scratch(self, rank: int, index: int, count: int = 1) -> Chunk:
        """Chunks of a rank's scratch, or the packets beside it."""
        return Chunk(rank, "scratch", index, count)

    # operations

    def _add(
        self, rank: int, block: int, kind: str, src: Chunks = (), dst: Chunks = (), part: tuple[int, int] = (0, 0), **more: int
    ) -> None:
        sources, targets = _listed(src), _listed(dst)
        i, n = _part(part)
        op = PlanOp(
            size=ctypes.sizeof(PlanOp), kind=_KINDS[kind], nsrc=len(sources), ndst=len(targets), slice=i, slices=n,
            **{name: _int(value, name) for name, value in more.items()},
        )
        _write_chunks(op.src, sources[:_TERMS])
        _write_chunks(op.dst, targets[:_TERMS])
        check(lib.spmt_plan_add(self._handle, _int(rank, "rank"), _int(block, "block"), ctypes.byref(op)))

    def put(self, rank: int, block: int, src: Chunk, dst: Chunk, part: tuple[int, int] = (0, 0)) -> None:
        """Chunks of this rank to another one."""
        self._add(rank, block, "put", src, dst, part)

    def get(self, rank: int, block: int, src: Chunk, dst: Chunk, part: tuple[int, int] = (0, 0)) -> None:
        """Chunks of another rank to this one."""
        self._add(rank, block, "get", src, dst, part)

    def copy(self, rank: int, block: int, src: Chunk, dst: Chunk, part: tuple[int, int] = (0, 0)) -> None:
        """Chunks within this rank."""
        self._add(rank, block, "copy", src, dst, part)

    def reduce(self, rank: int, block: int, src: Sequence[Chunk], dst: Chunks, part: tuple[int, int] = (0, 0)) -> None:
        """The first of src, this rank's, and any others, folded in this order; to dst, of which the first is this rank's."""
        self._add(rank, block, "reduce", src, dst, part)

    def put_packets(self, rank: int, block: int, src: Chunk, dst: Chunk, part: tuple[int, int] = (0, 0)) -> None:
        """Chunks of this rank to packets of any: who reads them waits for them."""
        self._add(rank, block, "put_packets", src, dst, part)

    def unpack_packets(self, rank: int, block: int, src: Chunk, dst: Chunk, part: tuple[int, int] = (0, 0)) -> None:
        """Packets of this rank, once they are there, to chunks of it."""
        self._add(rank, block, "unpack_packets", src, dst, part)

    def send_packets_on(self, rank: int, block: int, src: Chunk, dst: Chunks, part: tuple[int, int] = (0, 0)) -> None:
        """Packets of this rank, as they come, to those of others."""
        self._add(rank, block, "send_packets_on", src, dst, part)

    def reduce_packets(self, rank: int, block: int, src: Sequence[Chunk], dst: Chunks, part: tuple[int, int] = (0, 0)) -> None:
        """The first of src and packets of this rank, folded; to the first of dst, and as packets to the others."""
        self._add(rank, block, "reduce_packets", src, dst, part)

    def signal(self, rank: int, block: int, to: int, channel: int = 0, relaxed: bool = False) -> None:
        """To rank ``to``, behind all that this block has put; relaxed, it orders nothing."""
        self._add(rank, block, "signal_relaxed" if relaxed else "signal", peer=to, index=channel)

    def wait(self, rank: int, block: int, of: int, channel: int = 0, relaxed: bool = False) -> None:
        """For one more signal of rank ``of`` by this channel."""
        self._add(rank, block, "wait_relaxed" if relaxed else "wait", peer=of, index=channel)

    def barrier(self, rank: int, block: int, blocks: int, index: int = 0) -> None:
        """Of so many blocks of this rank."""
        self._add(rank, block, "barrier", blocks=blocks, index=index)

    def release(self, rank: int, block: int, semaphore: int = 0) -> None:
        """A semaphore of this rank, one up."""
        self._add(rank, block, "release", index=semaphore)

    def acquire(self, rank: int, block: int, semaphore: int = 0, initial: int = 0) -> None:
        """One down, once it is above 0; ``initial`` is what it begins with."""
        self._add(rank, block, "acquire", index=semaphore, initial=initial)

    # what it is

    def check(self) -> None:
        """Raises ``Error`` where it may stand still, has a race, or signals and waits do not match; the sentence names the operations."""
        check(lib.spmt_plan_check(self._handle))

    def _written(self, form: str) -> str:
        need = ctypes.c_size_t()
        code = lib.spmt_plan_write(self._handle, _FORMS[form], None, 0, ctypes.byref(need))
        if code != _ERANGE:
            check(code)
        text = ctypes.create_string_buffer(need.value)
        check(lib.spmt_plan_write(self._handle, _FORMS[form], text, need.value, ctypes.byref(need)))
        return text.value.decode()

    def to_json(self) -> str:
        """As a JSON execution plan of MSCCL++, which ``from_json``, ``spmt-plan`` and ``SPMT_COLL=plan:FILE`` read."""
        return self._written("json")

    @classmethod
    def from_json(cls, text: str | bytes | bytearray | memoryview) -> Plan:
        """The plan of such a text. ``Error`` names the line of what is wrong."""
        if not isinstance(text, (str, bytes, bytearray, memoryview)):  # bytes(5) are five NULs
            raise TypeError("the text is %r, neither str nor bytes" % (text,))
        data = text.encode() if isinstance(text, str) else bytes(text)
        handle = ctypes.c_void_p()
        check(lib.spmt_plan_read(data, len(data), ctypes.byref(handle)))
        plan = cls.__new__(cls)
        plan._own(handle)
        return plan

    def to_text(self) -> str:
        """A line an operation."""
        return self._written("text")

    def svg(self) -> str:
        """A picture: a column a block, arrows from signals to waits."""
        return self._written("svg")

    def _places(self, rank: int, chunk: int) -> tuple[int, int]:
        """In place: where input and output begin in the one buffer, of chunks of so many bytes."""
        return (
            rank * self.input_chunks * chunk if self.collective == "allgather" else 0,
            rank * self.output_chunks * chunk if self.collective == "reducescatter" else 0,
        )

    def _chunk(self, size: int, chunks: int) -> int:
        if size % max(chunks, 1):
            raise ValueError("%d elements are not a multiple of the plan's %d chunks" % (size, chunks))
        return size // max(chunks, 1)

    def simulate(self, inputs: Sequence[Any], op: str = "sum", seed: int = 1) -> list[np.ndarray[Any, Any]]:
        """What the plan makes of an input a rank, on the CPU, in the calling thread: an output a rank.

        ``seed`` chooses in which order blocks go on. A plan that stands still raises ``Error``.
        """
        given = [np.ascontiguousarray(x).ravel() for x in inputs]
        if len(given) != self.nranks or not self.input_chunks:
            raise ValueError("the plan has %d ranks, and %d chunks of input" % (self.nranks, self.input_chunks))
        kind, size = given[0].dtype, given[0].size
        if any(x.dtype != kind or x.size != size for x in given):
            raise ValueError("the inputs are not of one type and size")
        chunk = self._chunk(size, self.input_chunks)
        whole, apart = max(self.input_chunks, self.output_chunks) * chunk, 0 if self.in_place else size
        room = [np.zeros(whole + apart, kind) for _ in given]
        ins, outs = (ctypes.c_void_p * self.nranks)(), (ctypes.c_void_p * self.nranks)()
        results = []
        for rank, (x, buffer) in enumerate(zip(given, room)):
            first, result = self._places(rank, chunk) if self.in_place else (0, apart)
            buffer[first : first + size] = x
            ins[rank] = buffer.ctypes.data + first * kind.itemsize
            outs[rank] = buffer.ctypes.data + result * kind.itemsize
            results.append(buffer[result : result + self.output_chunks * chunk])
        trial = PlanTrial(
            size=ctypes.sizeof(PlanTrial), out=ctypes.cast(outs, ctypes.c_void_p), in_=ctypes.cast(ins, ctypes.c_void_p), count=size,
            type=_type(kind), op=_number(_OPS, op, "op"), seed=seed,
        )
        check(lib.spmt_plan_simulate(self._handle, ctypes.byref(trial)))
        return results

    # on a comm

    def open(self, comm: Comm, max_bytes: int) -> OpenPlan:
        """On a comm, for inputs (outputs, without any) of up to ``max_bytes`` a rank: collective, and checks the plan. A context manager."""
        return OpenPlan(self, comm, max_bytes)

    def run(self, comm: Comm, dst: Symmetric, src: Symmetric | None = None, op: str = "sum") -> None:
        """Opens the plan, runs it once and closes it: collective. To run it several times, ``open`` it."""
        given = [symmetric(dst, "dst")] + ([symmetric(src, "src")] if src is not None else [])
        with self.open(comm, max(one.nbytes for one in given)) as opened:
            opened.run(dst, src, op)


class OpenPlan(Unique):
    """A plan on a comm, whose memory it holds until ``close``, which is collective. Made by ``Plan.open``."""

    def __init__(self, plan: Plan, comm: Comm, max_bytes: int) -> None:
        if max_bytes < 0:
            raise ValueError("max_bytes is %d" % max_bytes)
        handle = ctypes.c_void_p()
        self.plan, self.comm = plan, comm
        comm._call(lib.spmt_plan_begin, plan._handle, max_bytes, ctypes.byref(handle))
        self._handle: int | None = handle.value

    def __enter__(self) -> OpenPlan:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.close()
        elif self._handle is not None and self.comm.status() != 0:  # nobody would come to close it, but in a broken world none has to
            handle, self._handle = self._handle, None
            lib.spmt_plan_end(self.comm._handle, handle)

    def run(self, dst: Symmetric, src: Symmetric | None = None, op: str = "sum") -> None:
        """Runs it and waits: collective. In place dst is the one buffer, and src is left out.

        Of a plan with neither input nor output dst only says how large a chunk of scratch is.
        """
        plan = self.plan
        if self._handle is None:
            raise ValueError("the plan is closed")
        symmetric(dst, "dst")
        if src is not None:
            symmetric(src, "src")
        if (src is None) != (plan.in_place or not plan.input_chunks):
            raise ValueError("in place, or without input, a plan has no src; else it has one")
        if src is not None and src.dtype != dst.dtype:
            raise TypeError("src is of %s and dst of %s" % (src.dtype, dst.dtype))
        at, item = dst._at(0, dst.nbytes), dst.dtype.itemsize
        if src is not None:
            chunk = plan._chunk(src.size, plan.input_chunks)
            if dst.size != plan.output_chunks * chunk:
                raise ValueError("dst has %d elements, not %d" % (dst.size, plan.output_chunks * chunk))
            source, target = src._at(0, src.nbytes), at
        else:
            chunk = plan._chunk(dst.size, max(plan.input_chunks, plan.output_chunks))
            first, result = plan._places(self.comm.rank, chunk * item)
            source, target = at + first, at + result
        self.comm._call(
            lib.spmt_plan_run, self._handle, target, source, chunk * (plan.input_chunks or plan.output_chunks or 1),
            _type(dst.dtype), _number(_OPS, op, "op"), None,
        )
        self.comm.quiet()

    def close(self) -> None:
        """Gives the memory back: collective. A second time is a no-op. Where it fails in a world that is whole, all may close it again."""
        handle, self._handle = self._handle, None
        if handle is None:
            return
        try:
            self.comm._call(lib.spmt_plan_end, handle)
        except Error as error:
            if error.code != -errno.EFAULT and not self.comm._is_broken():  # else, and in a broken world, the plan is gone
                self._handle = handle
            raise
