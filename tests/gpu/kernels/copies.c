/* SPDX-License-Identifier: MIT */
#include "copies.h"

struct call {
	void *dst;
	const void *src;
	uint64_t *sig;
	size_t size;
};

/* The device calls of one scope, on the heap and on a registered buffer. */
#define COPY_CALLS(scope, suffix)                                                              \
	static inline void copy_##scope(const struct copies_args *a, const struct call *c)     \
	{                                                                                      \
		const struct spmt_view *v = &a->view;                                          \
		const int op = SPMT_SIGNAL_ADD;                                                \
                                                                                               \
		switch (a->form) {                                                             \
		case PUT:                                                                      \
			spmtd_putmem##suffix(v, c->dst, c->src, c->size, a->pe);               \
			break;                                                                 \
		case PUT_NBI:                                                                  \
			spmtd_putmem_nbi##suffix(v, c->dst, c->src, c->size, a->pe);           \
			break;                                                                 \
		case GET:                                                                      \
			spmtd_getmem##suffix(v, c->dst, c->src, c->size, a->pe);               \
			break;                                                                 \
		case GET_NBI:                                                                  \
			spmtd_getmem_nbi##suffix(v, c->dst, c->src, c->size, a->pe);           \
			break;                                                                 \
		case PUT_SIGNAL:                                                               \
			spmtd_putmem_signal##suffix(                                           \
				v, c->dst, c->src, c->size, c->sig, 1, op, a->pe);             \
			break;                                                                 \
		default:                                                                       \
			spmtd_putmem_signal_nbi##suffix(                                       \
				v, c->dst, c->src, c->size, c->sig, 1, op, a->pe);             \
		}                                                                              \
	}                                                                                      \
	static inline void copy_mem_##scope(const struct copies_args *a, const struct call *c) \
	{                                                                                      \
		const struct spmt_view *v = &a->view;                                          \
		const struct spmt_mem_view *m = &a->mem;                                       \
		const int op = SPMT_SIGNAL_ADD;                                                \
		size_t to = (size_t)c->dst, from = (size_t)c->src;                             \
                                                                                               \
		switch (a->form) {                                                             \
		case PUT:                                                                      \
			spmtd_mem_putmem##suffix(v, m, to, c->src, c->size, a->pe);            \
			break;                                                                 \
		case PUT_NBI:                                                                  \
			spmtd_mem_putmem_nbi##suffix(v, m, to, c->src, c->size, a->pe);        \
			break;                                                                 \
		case GET:                                                                      \
			spmtd_mem_getmem##suffix(v, c->dst, m, from, c->size, a->pe);          \
			break;                                                                 \
		case GET_NBI:                                                                  \
			spmtd_mem_getmem_nbi##suffix(v, c->dst, m, from, c->size, a->pe);      \
			break;                                                                 \
		case PUT_SIGNAL:                                                               \
			spmtd_mem_putmem_signal##suffix(                                       \
				v, m, to, c->src, c->size, c->sig, 1, op, a->pe);              \
			break;                                                                 \
		default:                                                                       \
			spmtd_mem_putmem_signal_nbi##suffix(                                   \
				v, m, to, c->src, c->size, c->sig, 1, op, a->pe);              \
		}                                                                              \
	}
COPY_CALLS(thread, )
COPY_CALLS(warp, _warp)
COPY_CALLS(block, _block)

static inline void one_copy(const struct copies_args *a, const struct call *c)
{
	if (a->scope == BY_THREAD && !a->on_mem)
		copy_thread(a, c);
	else if (a->scope == BY_THREAD)
		copy_mem_thread(a, c);
	else if (a->scope == BY_WARP && !a->on_mem)
		copy_warp(a, c);
	else if (a->scope == BY_WARP)
		copy_mem_warp(a, c);
	else if (!a->on_mem)
		copy_block(a, c);
	else
		copy_mem_block(a, c);
}

static inline int all_done(const struct copies_args *a)
{
	if (a->scope == BY_THREAD)
		return spmtd_quiet(&a->view);
	return a->scope == BY_WARP ? spmtd_quiet_warp(&a->view) : spmtd_quiet_block(&a->view);
}

KERNEL_BODY run_copies(const struct copies_args *a)
{
	for (uint32_t i = worker(a->scope); i < a->calls; i += workers(a->scope)) {
		struct call c;

		c.dst = spmtd_to_(a->dst + i * a->slot + GUARD + copies_dst_shift(a, i));
		c.src = spmtd_to_(a->src + copies_src_shift(a, i));
		c.sig = (uint64_t *)spmtd_to_(a->sig) + i;
		c.size = (size_t)(a->size + i / a->each);
		one_copy(a, &c);
	}
	if (a->form == PUT_NBI || a->form == GET_NBI || a->form == PUT_SIGNAL_NBI)
		(void)all_done(a);
}
TEST_KERNEL(copies)

/* ---- locals ---------------------------------------------------------------------------------- */

enum { LOCAL_MOST = 64 };

static inline void through(const struct locals_args *a, unsigned char *room)
{
	for (uint32_t n = 1; n <= LOCAL_MOST; n++) {
		const void *src = spmtd_to_(a->src + n);
		void *dst = spmtd_to_(a->dst + 2 * LOCAL_MOST * n);

		spmtd_getmem(&a->view, room + n % 16, src, n, a->pe);
		spmtd_putmem(&a->view, dst, room + n % 16, n, a->pe);
	}
}

#if defined(__AMDGCN__) || defined(__NVPTX__)
static __attribute__((
	address_space(3), loader_uninitialized)) unsigned char shared_room[LOCAL_MOST + 16];
#endif

KERNEL_BODY run_locals(const struct locals_args *a)
{
	unsigned char room[LOCAL_MOST + 16];

	if (kernel_lane())
		return;
#if defined(__AMDGCN__) || defined(__NVPTX__)
	if (a->shared) {
		through(a, (unsigned char *)shared_room);
		return;
	}
#endif
	through(a, room);
}
TEST_KERNEL(locals)
