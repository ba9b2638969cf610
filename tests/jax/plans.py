# SPDX-License-Identifier: MIT
"""Plans from Python: every operation, what is refused, texts, and runs on worlds of threads."""

import copy
import os
import pickle
import re
import threading

import numpy as np

import spmt
import tap

os.environ.setdefault("SPMT_BACKEND", "host")
HEAP = 4 << 20
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def run(n, fn, *args):
    return spmt.run(n, fn, *args, heap_size=HEAP, timeout=120)


def fails(fn, *words, kind=spmt.Error):
    try:
        fn()
    except kind as error:
        for word in words:
            assert word in str(error), "no %r in: %s" % (word, error)
        return error
    raise AssertionError("nothing was raised")


def gather(n, in_place=False):
    """Each rank puts to all others."""
    plan = spmt.Plan("puts", "allgather", n, input_chunks=1, output_chunks=n, in_place=in_place)
    for rank in range(n):
        for peer in range(n):
            if peer != rank:
                plan.put(rank, peer % 2, plan.input(rank, 0), plan.output(peer, rank))
        if not in_place:
            plan.copy(rank, 0, plan.input(rank, 0), plan.output(rank, rank))
    return plan


def scatter(n, in_place=False):
    """Each rank folds its chunk of all inputs."""
    plan = spmt.Plan("pulls", "reducescatter", n, input_chunks=n, output_chunks=1, in_place=in_place)
    for rank in range(n):
        plan.reduce(rank, 0, [plan.input((rank + p) % n, rank) for p in range(n)], plan.output(rank, 0))
    return plan


def packets(n):
    """Everybody's data comes to everybody as packets."""
    plan = spmt.Plan("packets", "allreduce", n, input_chunks=1, output_chunks=1, scratch_chunks=n, in_place=True)
    for rank in range(n):
        own = plan.output(rank, 0)
        others = [(rank + p) % n for p in range(1, n)]
        for peer in others:
            plan.put_packets(rank, 0, own, plan.scratch(peer, rank))
        plan.reduce_packets(rank, 0, [own] + [plan.scratch(rank, peer) for peer in others], own)
    return plan


def every_operation():
    plan = spmt.Plan("each", "each", 2, input_chunks=2, output_chunks=8, scratch_chunks=3, max_bytes=1 << 20)
    i, o, s = plan.input, plan.output, plan.scratch
    plan.copy(0, 0, i(0, 0), o(0, 0))
    plan.get(0, 0, i(1, 1), o(0, 1), part=(0, 2))
    plan.get(0, 1, i(1, 1), o(0, 1), part=(1, 2))
    plan.put(1, 0, i(1, 0), o(0, 2))
    plan.signal(1, 0, to=0)
    plan.wait(0, 0, of=1)
    plan.signal(1, 0, to=0, channel=3, relaxed=True)
    plan.wait(0, 1, of=1, channel=3, relaxed=True)
    plan.reduce(0, 0, [i(0, 0), i(1, 1)], o(0, 3))
    plan.put_packets(1, 0, i(1, 0), s(0, 0))
    plan.unpack_packets(0, 1, s(0, 0), o(0, 4))
    plan.reduce_packets(0, 0, [i(0, 1), s(0, 0)], o(0, 5))
    plan.put_packets(0, 1, i(0, 1), s(1, 1))
    plan.send_packets_on(1, 1, s(1, 1), [s(0, 2)])
    plan.unpack_packets(0, 1, s(0, 2), o(0, 6))
    plan.release(0, 1, semaphore=2)
    plan.acquire(0, 0, semaphore=2)
    plan.barrier(0, 0, blocks=2)
    plan.barrier(0, 1, blocks=2)
    plan.copy(0, 0, o(0, 6), o(0, 7))
    plan.check()
    assert len(plan) == 20 and plan.max_bytes == 1 << 20 and "each of 2 ranks, 20" in repr(plan), plan
    a, b, c, d = (np.arange(4, dtype=np.int32) + 10 * k for k in range(1, 5))
    want = np.concatenate([a, d, c, a + d, c, b + c, b, b])
    for seed in range(8):
        assert (plan.simulate([np.concatenate([a, b]), np.concatenate([c, d])], seed=seed)[0] == want).all()
    lines = plan.to_text()
    for word in "relaxed signal", "send packets on", "part 1 of 2", "acquire semaphore 2", "barrier 0 of 2 blocks":
        assert word in lines, (word, lines)
    assert plan.svg().startswith("<svg ")


def texts():
    for plan in gather(3), gather(3, True), scatter(4), packets(3):
        again = spmt.Plan.from_json(plan.to_json())
        assert again.to_text() == plan.to_text() and again.to_json() == plan.to_json()
        assert (again.name, again.collective, again.nranks, again.in_place) == (
            plan.name, plan.collective, plan.nranks, plan.in_place)
        again.check()
    assert fails(lambda: spmt.Plan.from_json('{"name":\n 3}'), "line 2: name is no string").code == -22
    fails(lambda: spmt.Plan.from_json(b"\xff\x00"), "line 1")
    for kind in bytes, bytearray, memoryview:
        assert spmt.Plan.from_json(kind(gather(2).to_json().encode())).nranks == 2
    for wrong in 5, None, [123, 125]:
        fails(lambda: spmt.Plan.from_json(wrong), "the text is %r, neither str nor bytes" % (wrong,), kind=TypeError)


def refusals():
    plan = gather(2)
    assert fails(lambda: plan.put(0, 0, plan.input(0, 1), plan.output(1, 0)), "chunk").code == -22
    fails(lambda: plan.put(1, 0, plan.input(0, 0), plan.output(1, 0)))
    fails(lambda: plan.reduce(0, 0, [plan.input(0, 0)] * 17, plan.output(0, 0)))
    fails(lambda: plan.signal(0, 0, to=7))
    fails(lambda: plan.signal(0, 128, to=1))
    fails(lambda: plan.wait(0, 0, of=1, channel=128))
    fails(lambda: plan.signal(0, 0, to=1 << 32), "beyond any", kind=ValueError)
    fails(lambda: plan.copy(1 << 32, 0, plan.input(0, 0), plan.output(0, 0)), kind=ValueError)
    fails(lambda: plan.copy(0, 0, plan.input(0, -1), plan.output(0, 0)), kind=ValueError)
    fails(lambda: plan.copy(0, 0, spmt.Chunk(0, "in", 0), plan.output(0, 0)), "the buffer is 'in'", kind=ValueError)
    fails(lambda: plan.copy(0.5, 0, plan.input(0, 0), plan.output(0, 0)), "rank is 0.5, which is no integer", kind=TypeError)
    fails(lambda: plan.copy(0, "1", plan.input(0, 0), plan.output(0, 0)), "block is '1', which is no integer", kind=TypeError)
    fails(lambda: plan.copy(0, 0, plan.input(0, 0.5), plan.output(0, 0)), "index is 0.5, which is no integer", kind=TypeError)
    fails(lambda: plan.copy(0, 0, (0, "input", 0), plan.output(0, 0)), "0 is no Chunk", kind=TypeError)
    fails(lambda: plan.reduce(0, 0, [plan.input(0, 0), (1, "input", 0, 1)], plan.output(0, 0)), "(1, 'input', 0, 1) is no Chunk", kind=TypeError)
    fails(lambda: plan.copy(0, 0, plan.input(0, 0), np.zeros(2)), "is no Chunk", kind=TypeError)
    for part, kind in ((1,), ValueError), ((0, 2, 1), ValueError), (3, TypeError):
        fails(lambda: plan.copy(0, 0, plan.input(0, 0), plan.output(0, 0), part), "part is %r, which is not two" % (part,), kind=kind)
    fails(lambda: plan.copy(0, 0, plan.input(0, 0), plan.output(0, 0), (0, 0.5)), "the number of parts is 0.5", kind=TypeError)
    fails(lambda: spmt.Plan("x", "y", 2, input_chunks=1.5, output_chunks=1), "input_chunks is 1.5", kind=TypeError)
    fails(lambda: spmt.Plan("x", "y", 0, input_chunks=1, output_chunks=1))
    fails(lambda: spmt.Plan("x", "y", 2, input_chunks=-1, output_chunks=1), kind=ValueError)
    fails(lambda: spmt.Plan("x" * 64, "y", 2, input_chunks=1, output_chunks=1))
    assert spmt.Plan("x", "y", 2, input_chunks=1, output_chunks=1, in_place=1 << 40).in_place
    for other in copy.copy, copy.deepcopy, pickle.dumps:  # it would name memory that goes with this one
        fails(lambda: other(plan), "Plan cannot be copied or pickled: from_json", kind=TypeError)
    plan.check()  # nothing of that was added
    plan.wait(0, 0, of=1)
    fails(plan.check, "waits for what nobody signals")
    plan.signal(1, 0, to=0)
    plan.wait(1, 0, of=0, channel=1)
    plan.signal(0, 0, to=1, channel=1)
    plan.check()
    race = gather(2)
    race.put(0, 1, race.input(0, 0), race.output(1, 1))
    fails(race.check, "race: ", "nothing orders them")
    stuck = spmt.Plan("stuck", "x", 2, input_chunks=1, output_chunks=1)
    for rank in range(2):
        stuck.wait(rank, 0, of=1 - rank)
        stuck.signal(rank, 0, to=1 - rank)
    fails(stuck.check, "deadlock: ")
    assert fails(lambda: stuck.simulate([np.zeros(2), np.zeros(2)]), "stands still").code == -35
    fails(lambda: plan.simulate([np.zeros(2)]), kind=ValueError)
    fails(lambda: scatter(2).simulate([np.zeros(3)] * 2), "multiple", kind=ValueError)


def simulated():
    x = [np.arange(8, dtype=np.int64) * 10**r for r in range(4)]
    total = sum(x)
    for in_place in False, True:
        assert all((out == np.concatenate(x)).all() for out in gather(4, in_place).simulate(x))
        for rank, out in enumerate(scatter(4, in_place).simulate(x)):
            assert (out == total[2 * rank : 2 * rank + 2]).all()
    assert all((out == total).all() for out in packets(4).simulate(x))
    assert all((out == np.max(x, axis=0)).all() for out in packets(4).simulate(x, op="max"))


def runs():
    def rank(comm):
        n, r = comm.nranks, comm.rank
        src, dst = comm.malloc(4 * n, np.float64), comm.malloc(4 * n, np.float64)
        part = comm.malloc(4, np.float64)
        part.array[:] = r + 1
        src.array[:] = np.arange(4 * n) + r
        comm.barrier()
        plans[0].run(comm, dst, part)
        assert (dst.array == np.repeat(np.arange(n) + 1, 4)).all()
        plans[2].run(comm, part, src)
        assert (part.array == n * np.arange(4 * r, 4 * r + 4) + n * (n - 1) / 2).all()
        with plans[4].open(comm, part.nbytes) as opened:
            for turn in range(5):
                part.array[:] = r * turn
                comm.barrier()
                opened.run(part, op="max")
                assert (part.array == (n - 1) * turn).all()
                comm.barrier()
            fails(lambda: opened.run(part, src), kind=ValueError)
            fails(lambda: opened.run(dst), "max_bytes")
            fails(lambda: opened.run(part.copy_out()), "dst has to be a symmetric array", kind=TypeError)
            fails(lambda: copy.copy(opened), "OpenPlan cannot be copied", kind=TypeError)
        fails(lambda: opened.run(part), "closed", kind=ValueError)
        opened.close()
        dst.array[:] = -1
        dst.array[4 * r : 4 * r + 4] = r
        comm.barrier()
        plans[1].run(comm, dst)
        assert (dst.array == np.repeat(np.arange(n), 4)).all()
        plans[3].run(comm, src)
        assert (src.array[4 * r : 4 * r + 4] == n * np.arange(4 * r, 4 * r + 4) + n * (n - 1) / 2).all()
        fails(lambda: plans[0].run(comm, dst), kind=ValueError)
        fails(lambda: plans[0].run(comm, part, src), "not", kind=ValueError)
        fails(lambda: plans[0].run(comm, dst, np.zeros(4)), "src has to be a symmetric array", kind=TypeError)
        fails(lambda: gather(n + 1).run(comm, dst, part), "is for %d ranks" % (n + 1))
        return True

    plans = [gather(4), gather(4, True), scatter(4), scatter(4, True), packets(4)]
    assert all(run(4, rank))


def scratch_alone():
    """Neither input nor output: what is passed says how large a chunk is."""

    def rank(comm):
        size = comm.malloc(6, np.int64)
        with plan.open(comm, size.nbytes) as opened:
            opened.run(size)
            fails(lambda: opened.run(comm.malloc(7, np.int64)), "more than the max_bytes 48")
        return (size.array == 0).all()

    plan = spmt.Plan("alone", "test", 2, input_chunks=0, output_chunks=0, scratch_chunks=2)
    for r in (0, 1):
        plan.put(r, 0, plan.scratch(r, 0), plan.scratch(1 - r, 1))
        plan.signal(r, 0, 1 - r)
        plan.wait(r, 0, 1 - r)
    assert all(run(2, rank))


def a_plan_that_goes_while_it_is_open():
    def rank(comm):
        with gather(comm.nranks).open(comm, 64) as opened:
            opened.plan = opened.plan  # the last that holds it
            plan = opened.plan
            plan._free()
            src, dst = comm.malloc(2, np.int32), comm.malloc(2 * comm.nranks, np.int32)
            src.array[:] = comm.rank
            comm.barrier()
            opened.run(dst, src)
            assert (dst.array == np.repeat(np.arange(comm.nranks), 2)).all()

    run(3, rank)


def a_close_that_fails():
    """Ranks that close different plans have both of them still; in a broken world the plan is gone."""

    def rank(comm):
        n, src = comm.nranks, comm.malloc(2, np.int32)
        dst = comm.malloc(2 * n, np.int32)
        src.array[:] = comm.rank
        one, other = plan.open(comm, 64), plan.open(comm, 64)
        fails(lambda: (one if comm.rank else other).close(), "spmt_plan_end", "differs")
        for opened in other, one:
            dst.array[:] = -1
            comm.barrier()
            opened.run(dst, src)
            assert (dst.array == np.repeat(np.arange(n), 2)).all()
            opened.close()
            opened.close()
            fails(lambda: opened.run(dst, src), "closed", kind=ValueError)
        last = plan.open(comm, 64)
        comm.barrier()
        comm.abort()
        fails(last.close, "aborted the world")
        last.close()

    plan = gather(2)
    run(2, rank)


def one_that_fails():
    """A rank that raises ends the others' runs."""

    def rank(comm):
        dst = comm.malloc(2, np.int32)
        with plan.open(comm, 8) as opened:
            if comm.rank == 1:
                raise KeyError("on purpose")
            opened.run(dst)

    plan = packets(3)
    fails(lambda: run(3, rank), kind=(KeyError, spmt.Error))


def by_many_threads():
    """One plan, looked at by many."""
    plan, failed = scatter(4), []

    def look():
        try:
            for _ in range(20):
                plan.check()
                assert spmt.Plan.from_json(plan.to_json()).to_text() == plan.to_text()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed


def the_document():
    """What docs/plans.md shows runs as it stands."""
    with open(os.path.join(ROOT, "docs", "plans.md")) as file:
        programs = re.findall("```python\n(.*?)```", file.read(), re.S)
    assert len(programs) == 1
    names = {}
    exec(programs[0], names)
    assert (names["results"] == np.arange(4) + 1).all()


tap.main([
    every_operation, texts, refusals, simulated, runs, scratch_alone, a_plan_that_goes_while_it_is_open, a_close_that_fails, one_that_fails,
    by_many_threads, the_document,
])
