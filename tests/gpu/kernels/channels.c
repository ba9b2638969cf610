/* SPDX-License-Identifier: MIT */
#include "channels.h"

/* ---- channels --------------------------------------------------------------------------------- */

#define BOTH SPMTD_DATA_SYNC_BOTH
#define CALLS(scope, suffix, signals, waits)                                                  \
	static inline void put_##scope(const struct channels_args *a,                         \
		const struct spmt_channel *c, uint64_t dst, uint64_t src, uint64_t n)         \
	{                                                                                     \
		spmtd_channel_put##suffix(&a->view, c, dst, src, n);                          \
	}                                                                                     \
	static inline void put_signal_##scope(const struct channels_args *a,                  \
		const struct spmt_channel *c, uint64_t dst, uint64_t src, uint64_t n)         \
	{                                                                                     \
		spmtd_channel_put_signal##suffix(&a->view, c, dst, src, n);                   \
	}                                                                                     \
	static inline void get_##scope(const struct channels_args *a,                         \
		const struct spmt_channel *c, uint64_t dst, uint64_t src, uint64_t n)         \
	{                                                                                     \
		spmtd_channel_get##suffix(&a->view, c, dst, src, n);                          \
	}                                                                                     \
	static inline void signal_##scope(                                                    \
		const struct channels_args *a, const struct spmt_channel *c)                  \
	{                                                                                     \
		signals;                                                                      \
	}                                                                                     \
	static inline int wait_##scope(                                                       \
		const struct channels_args *a, const struct spmt_channel *c)                  \
	{                                                                                     \
		return waits;                                                                 \
	}                                                                                     \
	static inline int packets_##scope(const struct channels_args *a,                      \
		const struct spmt_channel *to, const struct spmt_channel *from, uint64_t at,  \
		uint64_t dst, uint64_t src, uint32_t flag)                                    \
	{                                                                                     \
		spmtd_channel_put_packets##suffix(&a->view, to, at, src, a->words * 8, flag); \
		return spmtd_channel_unpack_packets##suffix(                                  \
			&a->view, from, dst, at, a->words * 8, flag);                         \
	}                                                                                     \
	static inline void sum_##scope(const struct channels_args *a, uint64_t *dst,          \
		const uint64_t *own, const struct spmt_channel *c, const uint64_t *offsets)   \
	{                                                                                     \
		spmtd_channel_uint64_sum_reduce##suffix(                                      \
			&a->view, dst, own, c, offsets, 1, a->words);                         \
	}
CALLS(thread, , spmtd_channel_signal(&a->view, c), spmtd_channel_wait(&a->view, c))
CALLS(warp, _warp, spmtd_channel_signal_warp(&a->view, c, BOTH),
	spmtd_channel_wait_warp(&a->view, c, BOTH))
CALLS(block, _block, spmtd_channel_signal_block(&a->view, c, BOTH),
	spmtd_channel_wait_block(&a->view, c, BOTH))

#define BY_SCOPE(scope, call, ...)                                        \
	((scope) == BY_THREAD		     ? call##_thread(__VA_ARGS__) \
			: (scope) == BY_WARP ? call##_warp(__VA_ARGS__)   \
					     : call##_block(__VA_ARGS__))

static inline uint64_t channels_word(uint64_t round, int pe, uint64_t i)
{
	return round * 0x9e3779b97f4a7c15ull + (uint64_t)(uint32_t)pe * 1000003 + i;
}

/* sum_of: -1, or another rank whose words are added. */
static inline void channels_check(
	const struct channels_args *a, const uint64_t *words, uint64_t round, int pe, int sum_of)
{
	for (uint64_t i = spmtd_lane_(a->scope); i < a->words; i += spmtd_lanes_(a->scope)) {
		uint64_t want = channels_word(round, pe, i);

		if (sum_of >= 0)
			want += channels_word(round, sum_of, i);
		if (words[i] != want)
			outcome_add(a->outcome, 0, round, words[i], want);
	}
}

/* There, and the other way for: the place is free again. */
static inline int channels_shake(const struct channels_args *a, const struct spmt_channel *tell,
	const struct spmt_channel *hear)
{
	BY_SCOPE(a->scope, signal, a, tell);
	return BY_SCOPE(a->scope, wait, a, hear);
}

static inline int channels_round(const struct channels_args *a, const struct spmt_channel *next,
	const struct spmt_channel *prev, uint64_t at, uint64_t round)
{
	uint64_t place = a->words * 8, came = at + place, got = came + place;
	int me = a->view.pe, n = a->view.npes, rc;
	uint64_t *own = (uint64_t *)spmtd_to_(a->places + at);

	for (uint64_t i = spmtd_lane_(a->scope); i < a->words; i += spmtd_lanes_(a->scope))
		own[i] = channels_word(round, me, i);
	if (round % 2) {
		BY_SCOPE(a->scope, put_signal, a, next, came, at, place);
	} else {
		BY_SCOPE(a->scope, put, a, next, came, at, place);
		BY_SCOPE(a->scope, signal, a, next);
	}
	rc = BY_SCOPE(a->scope, wait, a, prev);
	if (rc)
		return rc;
	channels_check(a, own + a->words, round, (me + n - 1) % n, -1);
	rc = channels_shake(a, prev, next);
	if (rc)
		return rc;
	/* All of this rank's neighbours have filled theirs. */
	BY_SCOPE(a->scope, get, a, next, got, at, place);
	channels_check(a, own + 2 * a->words, round, (me + 1) % n, -1);
	BY_SCOPE(a->scope, sum, a, own + 3 * a->words, own, next, &at);
	channels_check(a, own + 3 * a->words, round, me, (me + 1) % n);
	rc = BY_SCOPE(
		a->scope, packets, a, next, prev, a->packets + 2 * at, came, at, (uint32_t)round);
	if (rc)
		return rc;
	channels_check(a, own + a->words, round, (me + n - 1) % n, -1);
	rc = channels_shake(a, next, prev);
	return rc ? rc : channels_shake(a, prev, next);
}

KERNEL_BODY run_channels(const struct channels_args *a)
{
	uint32_t w = worker(a->scope);
	const struct spmt_channel *own =
		(const struct spmt_channel *)spmtd_to_(a->channels) + 2 * w;
	struct spmt_channel next = own[0], prev = own[1];

	for (uint64_t round = a->done + 1; round <= a->done + a->rounds; round++) {
		int rc = channels_round(a, &next, &prev, w * 4 * a->words * 8, round);

		if (rc) {
			outcome_add(a->outcome, rc, round, 0, 0);
			return;
		}
	}
}
TEST_KERNEL(channels)

/* ---- there and back --------------------------------------------------------------------------- */

static inline int pingpong_wait(const struct pingpong_args *a)
{
	return a->relaxed ? spmtd_channel_wait_relaxed(&a->view, &a->other)
			  : spmtd_channel_wait(&a->view, &a->other);
}

static inline void pingpong_signal(const struct pingpong_args *a)
{
	if (a->relaxed)
		spmtd_channel_signal_relaxed(&a->view, &a->other);
	else
		spmtd_channel_signal(&a->view, &a->other);
}

KERNEL_BODY run_pingpong(const struct pingpong_args *a)
{
	int first = a->view.pe == 0, rc = 0;

	for (uint64_t round = 1; round <= a->rounds && !rc; round++) {
		if (first)
			pingpong_signal(a);
		rc = pingpong_wait(a);
		if (!first && !rc)
			pingpong_signal(a);
		if (rc)
			outcome_add(a->outcome, rc, round, 0, 0);
	}
}
TEST_KERNEL(pingpong)

/* ---- switch channels -------------------------------------------------------------------------- */

KERNEL_BODY run_switches(const struct switches_args *a)
{
	const struct spmt_view *v = &a->view;
	uint32_t block = kernel_block(), blocks = kernel_blocks();
	uint64_t *own = (uint64_t *)spmtd_switch_at_rank(v, &a->all, v->pe), place = a->words * 8;
	struct spmtd_range_ by = spmtd_share_by_(place, block, blocks);
	uint64_t from = by.from / 8, to = from + by.n / 8;
	int n = v->npes, rc = 0;

	for (uint64_t round = 1; round <= a->rounds && !rc; round++) {
		int root = (int)(round % (uint32_t)n);

		for (uint64_t i = from + spmtd_tid_(); i < to; i += spmtd_threads_())
			own[i] = channels_word(round, v->pe, i);
		rc = spmtd_barrier_at_block(v, block);
		spmtd_switch_uint64_sum_reduce_group(
			v, &a->all, own + a->words, 0, a->words, block, blocks);
		for (uint64_t i = from + spmtd_tid_(); i < to; i += spmtd_threads_()) {
			uint64_t want = 0;

			for (int pe = 0; pe < n; pe++)
				want += channels_word(round, pe, i);
			if (own[a->words + i] != want && !rc)
				outcome_add(a->outcome, 0, round, own[a->words + i], want);
		}
		if (v->pe == root)
			spmtd_switch_broadcast_group(
				v, &a->all, 2 * place, own, place, block, blocks);
		rc = rc ? rc : spmtd_barrier_at_block(v, block);
		for (uint64_t i = from + spmtd_tid_(); i < to && !rc; i += spmtd_threads_()) {
			uint64_t seen = own[2 * a->words + i], want = channels_word(round, root, i);

			if (seen != want)
				outcome_add(a->outcome, 1, round, seen, want);
		}
		rc = rc ? rc : spmtd_barrier_at_block(v, block);
		if (rc)
			outcome_add(a->outcome, rc, round, 0, 0);
	}
}
TEST_KERNEL(switches)

/* ---- bulk copies ------------------------------------------------------------------------------ */

#if defined(__AMDGCN__) || defined(__NVPTX__)
static __attribute__((address_space(3), aligned(128),
	loader_uninitialized)) unsigned char bulk_shared[BULK_CHUNK * BULK_STAGES + 64];
#else
static unsigned char bulk_shared[BULK_CHUNK * BULK_STAGES + 64] __attribute__((aligned(128)));
#endif

static inline unsigned char bulk_byte(const struct bulk_args *a, int pe, uint64_t i)
{
	return (unsigned char)(i * 7 + (i >> 8) * 3 + (uint32_t)pe * 31 + a->bytes + a->odd);
}

/* Twice nbi, so that stages are still in use, then what completes by itself. */
static inline int bulk_copy(const struct bulk_args *a, void *dst, const void *src)
{
	const struct spmt_view *v = &a->view;
	const int next = (v->pe + 1) % v->npes;
	uint64_t half = a->bytes / 2 / 16 * 16, rest = a->bytes - half;
	struct spmtd_bulk b;
	int rc = a->warp ? spmtd_bulk_begin_warp(&b, (void *)bulk_shared, BULK_CHUNK, BULK_STAGES)
			 : spmtd_bulk_begin(&b, (void *)bulk_shared, BULK_CHUNK, BULK_STAGES);

	if (rc)
		return rc;
	if (a->warp) {
		spmtd_bulk_put_nbi_warp(v, &b, dst, src, half, next);
		spmtd_bulk_put_many_nbi_warp(
			v, &b, (char *)dst + half, (const char *)src + half, rest, &next, 1);
		spmtd_bulk_end_warp(&b);
	} else {
		spmtd_bulk_put_nbi(v, &b, dst, src, half, next);
		spmtd_bulk_put(v, &b, (char *)dst + half, (const char *)src + half, rest, next);
		spmtd_bulk_end(&b);
	}
	return 0;
}

KERNEL_BODY run_bulk(const struct bulk_args *a)
{
	const struct spmt_view *v = &a->view;
	uint64_t at = kernel_block() * a->place;
	unsigned char *src = (unsigned char *)spmtd_to_(a->src + at + a->odd % 16);
	unsigned char *dst = (unsigned char *)spmtd_to_(a->dst + at + a->odd / 16);
	int prev = (v->pe + v->npes - 1) % v->npes, rc = 0;

	for (uint64_t i = spmtd_tid_(); i < a->bytes; i += spmtd_threads_())
		src[i] = bulk_byte(a, v->pe, i);
	spmtd_meet_block_();
	if (a->warp ? spmtd_tid_() < spmtd_warp_size_() : spmtd_tid_() == 0)
		rc = bulk_copy(a, dst, src);
	if (!rc)
		rc = spmtd_barrier_at_block(v, kernel_block());
	if (rc) {
		outcome_add(a->outcome, rc, 0, 0, 0);
		return;
	}
	for (uint64_t i = spmtd_tid_(); i < a->bytes; i += spmtd_threads_())
		if (dst[i] != bulk_byte(a, prev, i))
			outcome_add(a->outcome, 0, i, dst[i], bulk_byte(a, prev, i));
}
TEST_KERNEL(bulk)

/* ---- bulk reductions -------------------------------------------------------------------------- */

/* Small whole numbers, which every type has. */
static inline uint32_t bulk_number(const struct bulk_folds_args *a, int pe, uint64_t i)
{
	return (uint32_t)((i * 5 + (uint32_t)pe * 7 + a->bytes) % 100);
}

static inline uint32_t bulk_bits(const struct bulk_folds_args *a, uint32_t number)
{
	if (a->fold == FOLD_HALF)
		return spmtd_half_nearest_((float)number);
	return a->fold == FOLD_FLOAT ? spmtd_float_bits_((float)number) : number;
}

static inline uint32_t bulk_load(const struct bulk_folds_args *a, const void *p, uint64_t i)
{
	return a->fold == FOLD_HALF ? ((const uint16_t *)p)[i] : ((const uint32_t *)p)[i];
}

static inline void bulk_fill(const struct bulk_folds_args *a, void *p, uint64_t i, uint32_t number)
{
	if (a->fold == FOLD_HALF)
		((uint16_t *)p)[i] = (uint16_t)bulk_bits(a, number);
	else
		((uint32_t *)p)[i] = bulk_bits(a, number);
}

#define BULK_SUMS(name, T)                                                                         \
	static inline void bulk_sum_##name(                                                        \
		const struct bulk_folds_args *a, struct spmtd_bulk *b, void *dst, const void *src) \
	{                                                                                          \
		const struct spmt_view *v = &a->view;                                              \
		uint64_t n = a->bytes / sizeof(T);                                                 \
		int next = (v->pe + 1) % v->npes;                                                  \
		if (a->warp) {                                                                     \
			spmtd_bulk_##name##_sum_reduce_nbi_warp(                                   \
				v, b, (T *)dst, (const T *)src, n, next);                          \
			spmtd_bulk_quiet_warp(b);                                                  \
			spmtd_bulk_##name##_max_reduce_warp(                                       \
				v, b, (T *)dst, (const T *)src, n, next);                          \
		} else {                                                                           \
			spmtd_bulk_##name##_sum_reduce_nbi(                                        \
				v, b, (T *)dst, (const T *)src, n, next);                          \
			spmtd_bulk_quiet(b);                                                       \
			spmtd_bulk_##name##_max_reduce(v, b, (T *)dst, (const T *)src, n, next);   \
		}                                                                                  \
	}
BULK_SUMS(int32, int32_t)
BULK_SUMS(float, float)
BULK_SUMS(half, uint16_t)

static inline int bulk_reduce(const struct bulk_folds_args *a, void *dst, const void *src)
{
	struct spmtd_bulk b;
	int rc = a->warp ? spmtd_bulk_begin_warp(&b, (void *)bulk_shared, BULK_CHUNK, BULK_STAGES)
			 : spmtd_bulk_begin(&b, (void *)bulk_shared, BULK_CHUNK, BULK_STAGES);

	if (rc)
		return rc;
	if (a->fold == FOLD_HALF)
		bulk_sum_half(a, &b, dst, src);
	else if (a->fold == FOLD_FLOAT)
		bulk_sum_float(a, &b, dst, src);
	else
		bulk_sum_int32(a, &b, dst, src);
	if (a->warp)
		spmtd_bulk_end_warp(&b);
	else
		spmtd_bulk_end(&b);
	return 0;
}

/* The next rank's numbers, with this rank's added; the greater of that and this rank's is the same. */
KERNEL_BODY run_bulk_folds(const struct bulk_folds_args *a)
{
	const struct spmt_view *v = &a->view;
	uint64_t at = kernel_block() * a->place, width = a->fold == FOLD_HALF ? 2 : 4;
	uint64_t n = a->bytes / width;
	void *src = spmtd_to_(a->src + at + a->odd % 16 * width);
	void *dst = spmtd_to_(a->dst + at + a->odd / 16 * width);
	int prev = (v->pe + v->npes - 1) % v->npes, rc;

	for (uint64_t i = spmtd_tid_(); i < n; i += spmtd_threads_()) {
		bulk_fill(a, src, i, bulk_number(a, v->pe, i));
		bulk_fill(a, dst, i, (uint32_t)(i % 50));
	}
	rc = spmtd_barrier_at_block(v, kernel_block());
	if (!rc && (a->warp ? spmtd_tid_() < spmtd_warp_size_() : spmtd_tid_() == 0))
		rc = bulk_reduce(a, dst, src);
	rc = spmtd_agree_(rc, BY_BLOCK);
	if (!rc)
		rc = spmtd_barrier_at_block(v, kernel_block());
	if (rc) {
		outcome_add(a->outcome, rc, 0, 0, 0);
		return;
	}
	for (uint64_t i = spmtd_tid_(); i < n; i += spmtd_threads_()) {
		uint32_t want = bulk_bits(a, (uint32_t)(i % 50) + bulk_number(a, prev, i));

		if (bulk_load(a, dst, i) != want)
			outcome_add(a->outcome, 1, i, bulk_load(a, dst, i), want);
	}
	spmtd_meet_block_();
}
TEST_KERNEL(bulk_folds)
