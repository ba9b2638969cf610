/* SPDX-License-Identifier: MIT */
/* Signals and atomics: by the link's first mover. But where the map is loadable, and the CPU may not touch the memory or a stream's
   order is to be kept, a kernel of one thread does it. */
#include <errno.h>
#include <string.h>

#include "rma.h"
#include "spmt/comm/stream.h"
#include "spmt/control/exclusive.h"
#include "src/base/status.h"
#include "src/kernels/kernels.h"
#include "view.h"

/* ---- signals ------------------------------------------------------------------------------- */

int signal_check(const spmt_comm *comm, const char *what, const void *sig, enum spmt_signal_op op)
{
	if ((uintptr_t)sig % sizeof(uint64_t))
		return fail_call(
			-EINVAL, what, "rank %d: sig %p is not 8-byte aligned", comm->rank, sig);
	if (op != SPMT_SIGNAL_SET && op != SPMT_SIGNAL_ADD)
		return fail_call(
			-EINVAL, what, "rank %d: unknown signal op %d", comm->rank, (int)op);
	return 0;
}

static int signal_kernel(spmt_comm *comm, uint64_t *sig, uint64_t val, enum spmt_signal_op op,
	int pe, device_stream stream)
{
	struct kernel_signal_args args = {
		.sig = (uint64_t)(uintptr_t)sig, .value = val, .op = (int)op, .pe = pe
	};

	view_fill(comm, &args.view);
	link_count(&comm->links[pe], MOVER_STORE, sizeof(val));
	return kernel_queue(comm, &kernel_signal, &args, sizeof(args), stream);
}

int signal_queue(spmt_comm *comm, uint64_t *sig, uint64_t val, enum spmt_signal_op op, int pe,
	device_stream stream)
{
	struct mover *m = &comm->links[pe].movers[0];
	int rc;

	if (m->link->base)
		return signal_kernel(comm, sig, val, op, pe, stream);
	rc = m->ops->signal(m, rma_offset(comm, sig), val, op, stream);
	if (!rc)
		rma_stored_stream(comm, pe, stream);
	return rc;
}

static int signal_stream(spmt_comm *comm, uint64_t *sig, uint64_t val, enum spmt_signal_op op,
	int pe, device_stream stream)
{
	HOLD_DEVICE(comm);
	struct reserved reserved;
	int rc = stream_reserve(comm, stream, &reserved);

	if (!rc)
		rc = signal_queue(comm, sig, val, op, pe, stream);
	if (!rc)
		stream_note(comm, &reserved);
	return rc;
}

/* Whether the device has to do what a mover would, as the CPU cannot. */
static bool device_stores(const spmt_comm *comm, int pe)
{
	return !comm_cpu_access(comm) && comm->links[pe].base;
}

int signal_now(spmt_comm *comm, uint64_t *sig, uint64_t val, enum spmt_signal_op op, int pe)
{
	struct mover *m = &comm->links[pe].movers[0];
	int rc;

	if (device_stores(comm, pe)) {
		rc = signal_stream(comm, sig, val, op, pe, comm->stream);
		return comm_failed(
			comm, "spmt_signal", rc ? rc : stream_drain(comm, "spmt_signal"));
	}
	rc = m->ops->signal(m, rma_offset(comm, sig), val, op, NULL);
	comm->pending |= m->link->pending;
	rma_stored(comm, pe);
	return LIKELY(!rc) ? 0 : rma_failed(comm, "spmt_signal", rc);
}

int spmt_signal(spmt_comm *comm, uint64_t *sig, uint64_t val, enum spmt_signal_op op, int pe)
{
	static const struct call call = { "spmt_signal", "sig", "sig" };
	EXCLUSIVE(comm, __func__);
	int rc = rma_open(comm, &call, sig, sig, sizeof(*sig), pe);

	if (!rc)
		rc = signal_check(comm, call.name, sig, op);
	return rc ? rc : signal_now(comm, sig, val, op, pe);
}

int spmt_signal_on_stream(spmt_comm *comm, uint64_t *sig, uint64_t val, enum spmt_signal_op op,
	int pe, spmt_stream stream)
{
	static const struct call call = { "spmt_signal_on_stream", "sig", "sig" };
	EXCLUSIVE(comm, __func__);
	int rc = rma_open(comm, &call, sig, sig, sizeof(*sig), pe);

	if (!rc)
		rc = signal_check(comm, call.name, sig, op);
	if (rc)
		return rc;
	rc = signal_stream(comm, sig, val, op, pe, stream_of(comm, stream));
	return comm_failed(comm, call.name, rc);
}

/* ---- atomics ------------------------------------------------------------------------------- */

struct amo_call {
	enum spmt_amo amo;
	enum spmt_type type;
	size_t size;
	bool fetches, operates, compares;
};

static bool amo_fits(enum spmt_amo amo, enum spmt_type type)
{
	switch (type) {
	case SPMT_TYPE_I32:
	case SPMT_TYPE_U32:
	case SPMT_TYPE_I64:
	case SPMT_TYPE_U64:
		return true;
	case SPMT_TYPE_F32:
	case SPMT_TYPE_F64:
		return amo == SPMT_AMO_FETCH || amo == SPMT_AMO_SET || amo == SPMT_AMO_SWAP;
	default:
		return false;
	}
}

static int amo_check(const spmt_comm *comm, enum spmt_amo amo, enum spmt_type type,
	const void *target, const void *operand, const void *compare, const void *fetched,
	struct amo_call *call)
{
	static const char what[] = "spmt_atomic";

	if ((unsigned)amo > SPMT_AMO_FETCH_XOR)
		return fail_call(-EINVAL, what, "rank %d: unknown amo %d", comm->rank, (int)amo);
	if (!type_size(type))
		return fail_call(-EINVAL, what, "rank %d: unknown type %d", comm->rank, (int)type);
	if (!amo_fits(amo, type))
		return fail_call(-EINVAL, what,
			"rank %d: type %s, amo %s: there is none (i32 u32 i64 u64: all; f32 f64: fetch, set, swap)",
			comm->rank, type_name(type), amo_name(amo));
	*call = (struct amo_call){
		.amo = amo,
		.type = type,
		.size = type_size(type),
		.fetches = amo == SPMT_AMO_FETCH || amo == SPMT_AMO_SWAP ||
			amo == SPMT_AMO_COMPARE_SWAP || amo >= SPMT_AMO_FETCH_INC,
		.operates =
			amo != SPMT_AMO_FETCH && amo != SPMT_AMO_INC && amo != SPMT_AMO_FETCH_INC,
		.compares = amo == SPMT_AMO_COMPARE_SWAP,
	};
	if ((uintptr_t)target % call->size)
		return fail_call(-EINVAL, what, "rank %d: target %p is not %zu-byte aligned",
			comm->rank, target, call->size);
	if ((call->operates && !operand) || (call->compares && !compare) ||
		(call->fetches && !fetched))
		return fail_call(-EINVAL, what, "rank %d: %s is NULL, amo %s needs it", comm->rank,
			call->operates && !operand	     ? "operand"
				: call->compares && !compare ? "compare"
							     : "fetched",
			amo_name(amo));
	return 0;
}

/* By the device, waited for. */
static int amo_kernel(spmt_comm *comm, const struct amo *amo, enum spmt_type type, void *target,
	int pe, uint64_t *old)
{
	struct kernel_atomic_args args = { .target = (uint64_t)(uintptr_t)target,
		.operand = amo->operand,
		.compare = amo->compare,
		.amo = (int)amo->op,
		.type = (int)type,
		.pe = pe };
	int rc = scratch_room(comm, sizeof(*old));

	if (rc)
		return rc;
	args.fetched = (uint64_t)(uintptr_t)scratch_dev(comm);
	view_fill(comm, &args.view);
	rc = kernel_run(comm, &kernel_atomic, &args, sizeof(args), comm->stream);
	if (!rc)
		rc = stream_drain(comm, "spmt_atomic");
	if (rc)
		return rc;
	link_count(&comm->links[pe], MOVER_STORE, amo->size);
	memcpy(old, scratch_host(comm), sizeof(*old));
	return 0;
}

static int amo_run(spmt_comm *comm, const struct amo_call *call, const struct amo *amo,
	void *target, int pe, uint64_t *old)
{
	struct mover *m = &comm->links[pe].movers[0];
	int rc;

	if (device_stores(comm, pe))
		return comm_failed(
			comm, "spmt_atomic", amo_kernel(comm, amo, call->type, target, pe, old));
	rc = m->ops->atomic(m, rma_offset(comm, target), amo, call->fetches ? old : NULL);
	comm->pending |= m->link->pending;
	if (call->amo == SPMT_AMO_SET)
		rma_stored(comm, pe);
	else if (call->amo != SPMT_AMO_FETCH)
		wake_updated(comm->wake_counters[pe]);
	return LIKELY(!rc) ? 0 : rma_failed(comm, "spmt_atomic", rc);
}

int spmt_atomic(spmt_comm *comm, enum spmt_amo amo, enum spmt_type type, void *target,
	const void *operand, const void *compare, void *fetched, int pe)
{
	static const struct call atomic_call = { "spmt_atomic", "target", "target" };
	EXCLUSIVE(comm, __func__);
	struct amo_call call = { .size = 0 };
	struct amo a = { .op = amo };
	uint64_t old = 0;
	int rc = rma_open(comm, &atomic_call, target, target, 0, pe);

	if (!rc)
		rc = amo_check(comm, amo, type, target, operand, compare, fetched, &call);
	if (!rc)
		rc = rma_open(comm, &atomic_call, target, target, call.size, pe);
	if (rc)
		return rc;
	a.size = call.size;
	if (call.operates)
		memcpy(&a.operand, operand, call.size);
	if (call.compares)
		memcpy(&a.compare, compare, call.size);
	rc = amo_run(comm, &call, &a, target, pe, &old);
	if (!rc && call.fetches)
		memcpy(fetched, &old, call.size);
	return rc;
}
