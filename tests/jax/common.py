# SPDX-License-Identifier: MIT
"""Eight devices of the CPU, or those that JAX_PLATFORMS names, and cases that print TAP."""

import faulthandler
import os
import sys
import traceback

# Compiled fast rather than well: the time goes into compiling.
os.environ["XLA_FLAGS"] = (
    "--xla_force_host_platform_device_count=%s --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true %s"
    % (os.environ.get("SPMT_TEST_CPU_DEVICES", "8"), os.environ.get("SPMT_TEST_XLA_FLAGS", ""))
)
os.environ.setdefault("JAX_PLATFORMS", "cpu")
if os.environ["JAX_PLATFORMS"] == "cpu":
    os.environ.setdefault("SPMT_BACKEND", "host")

if os.environ.get("SPMT_TEST_CPUS"):  # no more than so many, for which XLA then makes its threads
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(os.environ["SPMT_TEST_CPUS"])])

import jax  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, PartitionSpec as P  # noqa: E402

import spmt.jax  # noqa: E402

jax.config.update("jax_enable_x64", True)
if "cpu" not in (jax.config.jax_platforms or "cpu").split(","):
    jax.config.update("jax_platforms", jax.config.jax_platforms + ",cpu")  # where jax.debug's callbacks have what they are given
faulthandler.enable()
faulthandler.dump_traceback_later(1500, exit=True)  # a hang

CPU = jax.default_backend() == "cpu"
N = min(8, len(jax.devices()) // 2 * 2) or 1  # an even number of devices, or the one that there is
RING = [(i, (i + 1) % N) for i in range(N)]
TIMEOUT = 120.0  # what only a hang reaches


def mesh(shape=(N,), names=("x",)):
    count = int(np.prod(shape))
    return Mesh(np.array(jax.devices()[:count]).reshape(shape), names)


def mapped(fn, on, specs=P("x"), out=P("x"), check=True):
    return jax.jit(jax.shard_map(fn, mesh=on, in_specs=specs, out_specs=out, check_vma=check))


def varying(x):
    """Over which axes a value varies, in shard_map; None where nobody counts that."""
    kind = getattr(jax.typeof(x), "mat", None)
    return getattr(jax.typeof(x), "vma", None) if kind is None else kind.varying


def raises(fn, *words):
    """The text of what fn raises, which has the words in it."""
    try:
        jax.block_until_ready(fn())
    except Exception as error:
        text = str(error)
        missing = [word for word in words if word not in text]
        assert not missing, "no %r in: %s" % (missing, text)
        return text
    raise AssertionError("nothing was raised")


def main(cases, least=2):
    """Runs functions in turn, on so many devices at least."""
    failed = 0
    if N < least:
        print("1..1\nok 1 - all # SKIP there is but one device", flush=True)
        return
    wanted = sys.argv[1:]
    cases = [case for case in cases if not wanted or case.__name__ in wanted]
    print("1..%d" % len(cases))
    for number, case in enumerate(cases, 1):
        name = case.__name__.replace("_", " ")
        try:
            case()
            print("ok %d - %s" % (number, name), flush=True)
        except BaseException:
            failed += 1
            print("not ok %d - %s" % (number, name))
            for line in traceback.format_exc().splitlines():
                print("# " + line, flush=True)
    sys.stdout.flush()
    os._exit(failed != 0)  # not through the ends of programs that a case may have left stuck
