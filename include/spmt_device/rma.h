/* SPDX-License-Identifier: MIT */
/* ---- who and where -------------------------------------------------------------------------- */

SPMTD_FN int spmtd_my_pe(const struct spmt_view *v)
{
	return v->pe;
}

SPMTD_FN int spmtd_n_pes(const struct spmt_view *v)
{
	return v->npes;
}

SPMTD_FN uint64_t spmtd_base_(const struct spmt_view *v, int pe)
{
	return v->stride ? v->flat + (uint64_t)(uint32_t)pe * v->stride : v->peers[pe].base;
}

SPMTD_FN uint64_t spmtd_there_(const struct spmt_view *v, const volatile void *sym, int pe)
{
	return spmtd_base_(v, pe) + (spmtd_at_(sym) - v->base);
}

SPMTD_FN uint64_t spmtd_mem_there_(const struct spmt_mem_view *m, size_t off, int pe)
{
	return m->peers[pe].base + off;
}

/* The address at which pe's copy of `sym` can be loaded and stored; NULL: pe out of range, not
   in the heap, not reachable. */
SPMTD_FN void *spmtd_ptr(const struct spmt_view *v, const void *sym, int pe)
{
	uint64_t off = spmtd_at_(sym) - v->base, base;

	if (pe < 0 || pe >= v->npes || off >= v->heap_size)
		return spmtd_to_(0);
	base = spmtd_base_(v, pe);
	return spmtd_to_(base ? base + off : 0);
}

/* Where pe's part of a registered buffer begins; NULL: pe out of range, no part, not reachable. */
SPMTD_FN void *spmtd_mem_ptr(const struct spmt_mem_view *m, int pe)
{
	return spmtd_to_(pe < 0 || pe >= m->npes ? 0 : m->peers[pe].base);
}

/* An address whose stores reach all ranks at once; NULL: there is none. */
SPMTD_FN void *spmtd_mc_ptr(const struct spmt_view *v, const void *sym)
{
	(void)v;
	(void)sym;
	return spmtd_to_(0);
}

SPMTD_FN void spmtd_wake_(const struct spmt_view *v, int pe)
{
#if defined(SPMTD_HOST)
	if (v->host)
		v->host->wake(v, pe);
#else
	(void)v;
	(void)pe;
#endif
}

/* ---- order ---------------------------------------------------------------------------------- */

/*
 * By PTX's model a relaxed store tells of what others have stored if its own thread has fenced before
 * it, after it had met them. So threads meet first, then fence; and those who fence for a block, its first
 * warp, for which a fence is one instruction, also post for it in a sync. Posts after a quiet of the same
 * scope then need no fence of their own, which would take as long as a barrier's.
 */
SPMTD_FN int spmtd_posts_(int scope)
{
	return spmtd_lane_(scope) < spmtd_warp_size_();
}

SPMTD_FN void spmtd_fence(const struct spmt_view *v)
{
	(void)v;
	spmtd_order_();
}

SPMTD_FN void spmtd_fence_warp(const struct spmt_view *v)
{
	(void)v;
	spmtd_meet_warp_();
	spmtd_order_();
}

SPMTD_FN void spmtd_fence_block(const struct spmt_view *v)
{
	(void)v;
	spmtd_gather_(SPMTD_BLOCK_);
	if (spmtd_posts_(SPMTD_BLOCK_))
		spmtd_order_();
	spmtd_meet_block_();
}

/* 0; a code, where completion has to be waited for and is not seen before the deadline. */
SPMTD_FN int spmtd_quiet(const struct spmt_view *v)
{
	(void)v;
	spmtd_complete_();
	return 0;
}

SPMTD_FN int spmtd_quiet_warp(const struct spmt_view *v)
{
	(void)v;
	spmtd_meet_warp_();
	spmtd_complete_();
	return 0;
}

SPMTD_FN int spmtd_quiet_block(const struct spmt_view *v)
{
	(void)v;
	spmtd_gather_(SPMTD_BLOCK_);
	if (spmtd_posts_(SPMTD_BLOCK_))
		spmtd_complete_();
	spmtd_meet_block_();
	return 0;
}

/* ---- put, get, signal ----------------------------------------------------------------------- */

/* dst: the raw address on pe. */
SPMTD_FN void spmtd_do_put_(const struct spmt_view *v, uint64_t dst, const void *src, uint64_t n,
	int pe, int scope, int nbi)
{
	spmtd_meet_(scope);
	if (n) {
		spmtd_copy_put_(dst, spmtd_at_(src), n, scope);
		spmtd_wake_(v, pe);
	}
	if (!nbi)
		spmtd_meet_(scope);
}

SPMTD_FN void spmtd_do_get_(void *dst, uint64_t src, uint64_t n, int scope, int nbi)
{
	spmtd_meet_(scope);
	if (n)
		spmtd_copy_get_(spmtd_at_(dst), src, n, scope);
	if (!nbi)
		spmtd_meet_(scope);
}

SPMTD_FN void spmtd_ring_(uint64_t sig, uint64_t val, int op)
{
	if (op == SPMT_SIGNAL_SET)
		spmtd_ring_set_(sig, val);
	else
		spmtd_ring_add_(sig, val);
}

SPMTD_FN void spmtd_do_put_signal_(const struct spmt_view *v, uint64_t dst, const void *src,
	uint64_t n, uint64_t *sig, uint64_t val, int op, int pe, int scope)
{
	spmtd_meet_(scope);
	if (n)
		spmtd_copy_put_(dst, spmtd_at_(src), n, scope);
	spmtd_gather_(scope);
	if (spmtd_lane_(scope) == 0)
		spmtd_ring_(spmtd_there_(v, sig, pe), val, op);
	spmtd_wake_(v, pe);
}

/* op: SPMT_SIGNAL_SET or SPMT_SIGNAL_ADD. One release at system scope. */
SPMTD_FN void spmtd_signal_op(
	const struct spmt_view *v, uint64_t *sig, uint64_t val, int op, int pe)
{
	spmtd_ring_(spmtd_there_(v, sig, pe), val, op);
	spmtd_wake_(v, pe);
}

SPMTD_FN uint64_t spmtd_signal_fetch(const struct spmt_view *v, const uint64_t *sig)
{
	uint64_t x = spmtd_look64_(spmtd_at_(sig));

	(void)v;
	spmtd_acquired_();
	return x;
}

/* The byte forms, on the heap and on a registered buffer at a byte offset. */
#define SPMTD_BYTES(suffix, scope, nbi)                                                           \
	SPMTD_FN void spmtd_putmem##suffix(                                                       \
		const struct spmt_view *v, void *dst, const void *src, size_t n, int pe)          \
	{                                                                                         \
		spmtd_do_put_(v, spmtd_there_(v, dst, pe), src, n, pe, scope, nbi);               \
	}                                                                                         \
	SPMTD_FN void spmtd_getmem##suffix(                                                       \
		const struct spmt_view *v, void *dst, const void *src, size_t n, int pe)          \
	{                                                                                         \
		spmtd_do_get_(dst, spmtd_there_(v, src, pe), n, scope, nbi);                      \
	}                                                                                         \
	SPMTD_FN void spmtd_putmem_signal##suffix(const struct spmt_view *v, void *dst,           \
		const void *src, size_t n, uint64_t *sig, uint64_t val, int op, int pe)           \
	{                                                                                         \
		spmtd_do_put_signal_(                                                             \
			v, spmtd_there_(v, dst, pe), src, n, sig, val, op, pe, scope);            \
	}                                                                                         \
	SPMTD_FN void spmtd_mem_putmem##suffix(const struct spmt_view *v,                         \
		const struct spmt_mem_view *m, size_t dst_off, const void *src, size_t n, int pe) \
	{                                                                                         \
		spmtd_do_put_(v, spmtd_mem_there_(m, dst_off, pe), src, n, pe, scope, nbi);       \
	}                                                                                         \
	SPMTD_FN void spmtd_mem_getmem##suffix(const struct spmt_view *v, void *dst,              \
		const struct spmt_mem_view *m, size_t src_off, size_t n, int pe)                  \
	{                                                                                         \
		(void)v;                                                                          \
		spmtd_do_get_(dst, spmtd_mem_there_(m, src_off, pe), n, scope, nbi);              \
	}                                                                                         \
	SPMTD_FN void spmtd_mem_putmem_signal##suffix(const struct spmt_view *v,                  \
		const struct spmt_mem_view *m, size_t dst_off, const void *src, size_t n,         \
		uint64_t *sig, uint64_t val, int op, int pe)                                      \
	{                                                                                         \
		spmtd_do_put_signal_(                                                             \
			v, spmtd_mem_there_(m, dst_off, pe), src, n, sig, val, op, pe, scope);    \
	}
SPMTD_BYTES(, SPMTD_THREAD_, 0)
SPMTD_BYTES(_warp, SPMTD_WARP_, 0)
SPMTD_BYTES(_block, SPMTD_BLOCK_, 0)
SPMTD_BYTES(_nbi, SPMTD_THREAD_, 1)
SPMTD_BYTES(_nbi_warp, SPMTD_WARP_, 1)
SPMTD_BYTES(_nbi_block, SPMTD_BLOCK_, 1)

/* The 11 types: name, C type, its bits as a number, how many, and how two of them compare: U, S
   or F. */
#define SPMTD_TYPES(X)                       \
	X(uint8, uint8_t, uint8_t, 8, U)     \
	X(int8, int8_t, uint8_t, 8, S)       \
	X(schar, signed char, uint8_t, 8, S) \
	X(uint16, uint16_t, uint16_t, 16, U) \
	X(int16, int16_t, uint16_t, 16, S)   \
	X(uint32, uint32_t, uint32_t, 32, U) \
	X(int32, int32_t, uint32_t, 32, S)   \
	X(uint64, uint64_t, uint64_t, 64, U) \
	X(int64, int64_t, uint64_t, 64, S)   \
	X(float, float, uint32_t, 32, F)     \
	X(double, double, uint64_t, 64, F)

#define SPMTD_BITS(name, T, U_, bits, kind)   \
	union spmtd_##name##_pun_ {           \
		T x;                          \
		U_ u;                         \
	};                                    \
	SPMTD_FN U_ spmtd_##name##_bits_(T x) \
	{                                     \
		union spmtd_##name##_pun_ p;  \
		p.x = x;                      \
		return p.u;                   \
	}                                     \
	SPMTD_FN T spmtd_##name##_of_(U_ u)   \
	{                                     \
		union spmtd_##name##_pun_ p;  \
		p.u = u;                      \
		return p.x;                   \
	}
SPMTD_TYPES(SPMTD_BITS)

/* n counts elements; offsets into registered buffers stay bytes. */
#define SPMTD_TYPED(name, T, suffix, scope, nbi)                                                  \
	SPMTD_FN void spmtd_##name##_put##suffix(                                                 \
		const struct spmt_view *v, T *dst, const T *src, size_t n, int pe)                \
	{                                                                                         \
		spmtd_do_put_(v, spmtd_there_(v, dst, pe), src, n * sizeof(T), pe, scope, nbi);   \
	}                                                                                         \
	SPMTD_FN void spmtd_##name##_get##suffix(                                                 \
		const struct spmt_view *v, T *dst, const T *src, size_t n, int pe)                \
	{                                                                                         \
		spmtd_do_get_(dst, spmtd_there_(v, src, pe), n * sizeof(T), scope, nbi);          \
	}                                                                                         \
	SPMTD_FN void spmtd_mem_##name##_put##suffix(const struct spmt_view *v,                   \
		const struct spmt_mem_view *m, size_t dst_off, const T *src, size_t n, int pe)    \
	{                                                                                         \
		spmtd_do_put_(                                                                    \
			v, spmtd_mem_there_(m, dst_off, pe), src, n * sizeof(T), pe, scope, nbi); \
	}                                                                                         \
	SPMTD_FN void spmtd_mem_##name##_get##suffix(const struct spmt_view *v, T *dst,           \
		const struct spmt_mem_view *m, size_t src_off, size_t n, int pe)                  \
	{                                                                                         \
		(void)v;                                                                          \
		spmtd_do_get_(dst, spmtd_mem_there_(m, src_off, pe), n * sizeof(T), scope, nbi);  \
	}
#define SPMTD_RMA(name, T, U_, bits, kind)                                                        \
	SPMTD_TYPED(name, T, , SPMTD_THREAD_, 0)                                                  \
	SPMTD_TYPED(name, T, _warp, SPMTD_WARP_, 0)                                               \
	SPMTD_TYPED(name, T, _block, SPMTD_BLOCK_, 0)                                             \
	SPMTD_TYPED(name, T, _nbi, SPMTD_THREAD_, 1)                                              \
	SPMTD_TYPED(name, T, _nbi_warp, SPMTD_WARP_, 1)                                           \
	SPMTD_TYPED(name, T, _nbi_block, SPMTD_BLOCK_, 1)                                         \
	SPMTD_FN void spmtd_##name##_p(const struct spmt_view *v, T *dst, T value, int pe)        \
	{                                                                                         \
		spmtd_poke##bits##_(spmtd_there_(v, dst, pe), spmtd_##name##_bits_(value));       \
		spmtd_wake_(v, pe);                                                               \
	}                                                                                         \
	SPMTD_FN T spmtd_##name##_g(const struct spmt_view *v, const T *src, int pe)              \
	{                                                                                         \
		return spmtd_##name##_of_(spmtd_peek##bits##_(spmtd_there_(v, src, pe)));         \
	}                                                                                         \
	SPMTD_FN void spmtd_mem_##name##_p(const struct spmt_view *v,                             \
		const struct spmt_mem_view *m, size_t dst_off, T value, int pe)                   \
	{                                                                                         \
		spmtd_poke##bits##_(                                                              \
			spmtd_mem_there_(m, dst_off, pe), spmtd_##name##_bits_(value));           \
		spmtd_wake_(v, pe);                                                               \
	}                                                                                         \
	SPMTD_FN T spmtd_mem_##name##_g(                                                          \
		const struct spmt_view *v, const struct spmt_mem_view *m, size_t src_off, int pe) \
	{                                                                                         \
		(void)v;                                                                          \
		return spmtd_##name##_of_(spmtd_peek##bits##_(spmtd_mem_there_(m, src_off, pe))); \
	}
SPMTD_TYPES(SPMTD_RMA)
