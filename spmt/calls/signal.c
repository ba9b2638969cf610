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
	comm->pending |= m->link->pending;
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

int signal_now(spmt_comm *comm, const char *what, uint64_t *sig, uint64_t val,
	enum spmt_signal_op op, int pe)
{
	struct mover *m = &comm->links[pe].movers[0];
	int rc;

	if (device_stores(comm, pe)) {
		rc = signal_stream(comm, sig, val, op, pe, comm->stream);
		return comm_failed(comm, what, rc ? rc : stream_drain(comm, what));
	}
	rc = m->ops->signal(m, rma_offset(comm, sig), val, op, NULL);
	comm->pending |= m->link->pending;
	rma_stored(comm, pe);
	return LIKELY(!rc) ? 0 : rma_failed(comm, what, rc);
}

int spmt_signal(spmt_comm *comm, uint64_t *sig, uint64_t val, enum spmt_signal_op op, int pe)
{
	static const struct call call = { "spmt_signal", "sig", "sig" };
	EXCLUSIVE(comm, __func__);
	int rc = rma_open(comm, &call, sig, sig, sizeof(*sig), pe);

	if (!rc)
		rc = signal_check(comm, call.name, sig, op);
	return rc ? rc : signal_now(comm, call.name, sig, val, op, pe);
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

/* What an atomic takes and gives. */
enum { AMO_FETCHES = 1, AMO_OPERATES = 2, AMO_COMPARES = 4 };
static const uint8_t amo_uses[] = {
	[SPMT_AMO_FETCH] = AMO_FETCHES,
	[SPMT_AMO_SET] = AMO_OPERATES,
	[SPMT_AMO_SWAP] = AMO_FETCHES | AMO_OPERATES,
	[SPMT_AMO_COMPARE_SWAP] = AMO_FETCHES | AMO_OPERATES | AMO_COMPARES,
	[SPMT_AMO_INC] = 0,
	[SPMT_AMO_ADD] = AMO_OPERATES,
	[SPMT_AMO_AND] = AMO_OPERATES,
	[SPMT_AMO_OR] = AMO_OPERATES,
	[SPMT_AMO_XOR] = AMO_OPERATES,
	[SPMT_AMO_FETCH_INC] = AMO_FETCHES,
	[SPMT_AMO_FETCH_ADD] = AMO_FETCHES | AMO_OPERATES,
	[SPMT_AMO_FETCH_AND] = AMO_FETCHES | AMO_OPERATES,
	[SPMT_AMO_FETCH_OR] = AMO_FETCHES | AMO_OPERATES,
	[SPMT_AMO_FETCH_XOR] = AMO_FETCHES | AMO_OPERATES,
};

/* What the caller gave. */
struct amo_call {
	enum spmt_amo amo;
	enum spmt_type type;
	void *target;
	const void *operand, *compare;
	void *fetched;
	int pe;
};

static inline bool amo_is(enum spmt_amo amo)
{
	return (unsigned)amo < ARRAY_SIZE(amo_uses);
}

static inline bool amo_whole(enum spmt_type type)
{
	return type == SPMT_TYPE_U64 || type == SPMT_TYPE_I64 || type == SPMT_TYPE_U32 ||
		type == SPMT_TYPE_I32;
}

static bool amo_fits(enum spmt_amo amo, enum spmt_type type)
{
	bool moves = amo == SPMT_AMO_FETCH || amo == SPMT_AMO_SET || amo == SPMT_AMO_SWAP;

	return amo_whole(type) || (moves && (type == SPMT_TYPE_F32 || type == SPMT_TYPE_F64));
}

static inline size_t amo_size(enum spmt_type type)
{
	return type == SPMT_TYPE_I32 || type == SPMT_TYPE_U32 || type == SPMT_TYPE_F32 ? 4 : 8;
}

/* Of what it takes and gives, for which no argument is there. */
static inline unsigned amo_misses(const struct amo_call *c)
{
	unsigned given = (c->fetched ? AMO_FETCHES : 0u) | (c->operand ? AMO_OPERATES : 0u) |
		(c->compare ? AMO_COMPARES : 0u);

	return amo_uses[c->amo] & ~given;
}

static inline bool amo_aligned(const struct amo_call *c)
{
	return !((uintptr_t)c->target & (amo_size(c->type) - 1));
}

static int amo_check(const spmt_comm *comm, const struct amo_call *c)
{
	static const char what[] = "spmt_atomic";

	if (!amo_is(c->amo))
		return fail_call(-EINVAL, what, "rank %d: unknown amo %d", comm->rank, (int)c->amo);
	if (!type_size(c->type))
		return fail_call(
			-EINVAL, what, "rank %d: unknown type %d", comm->rank, (int)c->type);
	if (!amo_fits(c->amo, c->type))
		return fail_call(-EINVAL, what,
			"rank %d: type %s, amo %s: there is none (i32 u32 i64 u64: all; f32 f64: fetch, set, swap)",
			comm->rank, type_name(c->type), amo_name(c->amo));
	if (!amo_aligned(c))
		return fail_call(-EINVAL, what, "rank %d: target %p is not %zu-byte aligned",
			comm->rank, c->target, amo_size(c->type));
	if (amo_misses(c))
		return fail_call(-EINVAL, what, "rank %d: %s is NULL, amo %s needs it", comm->rank,
			amo_misses(c) & AMO_OPERATES	       ? "operand"
				: amo_misses(c) & AMO_COMPARES ? "compare"
							       : "fetched",
			amo_name(c->amo));
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

static inline __attribute__((always_inline)) int amo_run(
	spmt_comm *comm, const struct amo_call *c, const struct amo *amo, uint64_t *old)
{
	struct mover *m = &comm->links[c->pe].movers[0];
	int rc;

	if (device_stores(comm, c->pe))
		return comm_failed(
			comm, "spmt_atomic", amo_kernel(comm, amo, c->type, c->target, c->pe, old));
	rc = m->ops->atomic(
		m, rma_offset(comm, c->target), amo, amo_uses[c->amo] & AMO_FETCHES ? old : NULL);
	comm->pending |= m->link->pending;
	if (c->amo == SPMT_AMO_SET)
		rma_stored(comm, c->pe);
	else if (c->amo != SPMT_AMO_FETCH)
		wake_updated(comm->wake_counters[c->pe]);
	return LIKELY(!rc) ? 0 : rma_failed(comm, "spmt_atomic", rc);
}

static inline void word_copy(void *to, const void *from, size_t size)
{
	if (size == sizeof(uint64_t))
		memcpy(to, from, sizeof(uint64_t));
	else
		memcpy(to, from, sizeof(uint32_t));
}

/* All of the call being settled. */
static inline __attribute__((always_inline)) int amo_go(spmt_comm *comm, const struct amo_call *c)
{
	unsigned uses = amo_uses[c->amo];
	struct amo amo = { .op = c->amo, .size = amo_size(c->type) };
	uint64_t old = 0;
	int rc;

	if (uses & AMO_OPERATES)
		word_copy(&amo.operand, c->operand, amo.size);
	if (uses & AMO_COMPARES)
		word_copy(&amo.compare, c->compare, amo.size);
	rc = amo_run(comm, c, &amo, &old);
	if (!rc && uses & AMO_FETCHES)
		word_copy(c->fetched, &old, amo.size);
	return rc;
}

__attribute__((cold)) static int amo_closer(spmt_comm *comm, const struct amo_call *c)
{
	static const struct call call = { "spmt_atomic", "target", "target" };
	EXCLUSIVE(comm, call.name);
	int rc = rma_open(comm, &call, c->target, c->target, 0, c->pe);

	if (!rc)
		rc = amo_check(comm, c);
	if (!rc)
		rc = rma_open(comm, &call, c->target, c->target, amo_size(c->type), c->pe);
	return rc ? rc : amo_go(comm, c);
}

/* Needs no closer look. */
static inline bool amo_quick(const spmt_comm *comm, const struct amo_call *c)
{
	return LIKELY(amo_is(c->amo) && amo_whole(c->type) && !amo_misses(c) && amo_aligned(c) &&
		comm_quick(comm) && comm_has_pe(comm, c->pe) &&
		heap_clear(comm->heap, c->target, amo_size(c->type)));
}

int spmt_atomic(spmt_comm *comm, enum spmt_amo amo, enum spmt_type type, void *target,
	const void *operand, const void *compare, void *fetched, int pe)
{
	const struct amo_call call = { amo, type, target, operand, compare, fetched, pe };

	if (amo_quick(comm, &call))
		return amo_go(comm, &call);
	return amo_closer(comm,
		&(struct amo_call){ amo, type, target, operand, compare, fetched,
			pe }); /* `call` stays in registers */
}
