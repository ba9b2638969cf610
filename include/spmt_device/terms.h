/* SPDX-License-Identifier: MIT */
/* Sums of what lies at several addresses, of channels or of a switch's ranks, by the threads of a scope; and the shares that blocks have of
   one transfer. */
#ifndef SPMTD_TERMS_H
#define SPMTD_TERMS_H

#include "coll.h"

SPMTD_BEGIN

/* ---- shares of blocks ----------------------------------------------------------------------- */

/* Of n bytes, those that block `index` of `blocks` has; all but the last share are whole lines. */
struct spmtd_range_ {
	uint64_t from, n;
};

enum { SPMTD_SHARE_LINE_ = 128 };

SPMTD_FN uint64_t spmtd_share_from_(uint64_t n, uint32_t index, uint32_t blocks)
{
	uint64_t lines = (n + SPMTD_SHARE_LINE_ - 1) / SPMTD_SHARE_LINE_;
	uint64_t more = lines % blocks < index ? lines % blocks : index;
	uint64_t from = (lines / blocks * index + more) * SPMTD_SHARE_LINE_;

	return from < n ? from : n;
}

SPMTD_FN struct spmtd_range_ spmtd_share_by_(uint64_t n, uint32_t index, uint32_t blocks)
{
	struct spmtd_range_ r;

	r.from = r.n = 0;
	if (index >= blocks)
		return r;
	r.from = spmtd_share_from_(n, index, blocks);
	r.n = spmtd_share_from_(n, index + 1, blocks) - r.from;
	return r;
}

/* ---- terms ---------------------------------------------------------------------------------- */

/* What is folded, term by term: this rank's own and what lies behind channels, or every rank's part of a switch. */
struct spmtd_terms_ {
	const struct spmt_channel *channels;
	const uint64_t *offsets; /* by channel */
	const struct spmtd_peer *peers;
	const struct spmtd_mem_peer *parts;
	uint64_t flat, stride;
	uint64_t
		at; /* of channels: where the own term lies; of a switch: in every rank's heap or part */
	uint64_t dst, from, n;	 /* n elements, from the byte `from` of each */
	int32_t terms, switched; /* switched: of a switch */
	uint32_t lane, lanes;
};

SPMTD_FN uint64_t spmtd_term_at_(const struct spmtd_terms_ *t, int i)
{
	if (!t->switched)
		return t->from + (i ? t->channels[i - 1].remote + t->offsets[i - 1] : t->at);
	if (t->parts)
		return t->from + t->at + t->parts[i].base;
	return t->from + t->at +
		(t->stride ? t->flat + (uint64_t)(uint32_t)i * t->stride : t->peers[i].base);
}

/* 1: all lie at multiples of 16. */
SPMTD_FN int spmtd_terms_aligned_(const struct spmtd_terms_ *t)
{
	uint64_t odd = t->dst + t->from;

	SPMTD_ROLLED for (int i = 0; i < t->terms; i++) odd |= spmtd_term_at_(t, i);
	return (odd & 15) == 0;
}

/* Terms that are on their way to a thread at once. */
#define SPMTD_FLIGHT 4

/* chunk: 16 bytes, or one element; `at`: from t->from on. dst, and the own term, may be any memory. */
#define SPMTD_TERMS(name, T, W, bits)                                                              \
	SPMTD_FN void spmtd_##name##_terms_chunk_(const struct spmtd_terms_ *t, int op,            \
		uint64_t at, uint32_t chunk, union spmtd_##name##_chunk_ *out)                     \
	{                                                                                          \
		W sum[16 / sizeof(T)];                                                             \
		SPMTD_UNROLL for (uint32_t k = 0; k < chunk / sizeof(T); k++) sum[k] = 0;          \
		SPMTD_ROLLED for (int i = 0; i < t->terms; i += SPMTD_FLIGHT)                      \
		{                                                                                  \
			union spmtd_##name##_chunk_ in[SPMTD_FLIGHT];                              \
			SPMTD_UNROLL for (int j = 0; j < SPMTD_FLIGHT; j++)                        \
			{                                                                          \
				uint64_t a = i + j < t->terms ? spmtd_term_at_(t, i + j) + at : 0; \
				in[j].unit.a = in[j].unit.b = 0;                                   \
				if (a && chunk == 16)                                              \
					in[j].unit = spmtd_load16b_(a);                            \
				else if (a)                                                        \
					in[j].one = spmtd_load##bits##_(a);                        \
			}                                                                          \
			SPMTD_UNROLL for (int j = 0; j < SPMTD_FLIGHT; j++)                        \
			{                                                                          \
				if (i + j >= t->terms)                                             \
					continue;                                                  \
				SPMTD_UNROLL for (uint32_t k = 0; k < chunk / sizeof(T); k++)      \
				{                                                                  \
					W x = spmtd_##name##_widened_(in[j].x[k]);                 \
					sum[k] = i + j == 0 ? x                                    \
							    : spmtd_##name##_join_(op, sum[k], x); \
				}                                                                  \
			}                                                                          \
		}                                                                                  \
		SPMTD_UNROLL for (uint32_t k = 0; k < chunk / sizeof(T); k++) out->x[k] =          \
			spmtd_##name##_rounded_(sum[k]);                                           \
	}                                                                                          \
	SPMTD_FN void spmtd_##name##_terms_run_(                                                   \
		const struct spmtd_terms_ *t, int op, uint64_t from, uint64_t n, uint32_t chunk)   \
	{                                                                                          \
		SPMTD_ROLLED for (uint64_t i = t->lane; i < n; i += t->lanes)                      \
		{                                                                                  \
			union spmtd_##name##_chunk_ out;                                           \
			uint64_t at = from + i * chunk, a = t->dst + t->from + at;                 \
			spmtd_##name##_terms_chunk_(t, op, at, chunk, &out);                       \
			if (chunk == 16)                                                           \
				spmtd_store16b_(a, out.unit);                                      \
			else                                                                       \
				spmtd_store##bits##_(a, out.one);                                  \
		}                                                                                  \
	}                                                                                          \
	SPMTD_RARE void spmtd_##name##_terms_(const struct spmtd_terms_ *t, int op)                \
	{                                                                                          \
		uint64_t units = spmtd_terms_aligned_(t) ? t->n / (16 / sizeof(T)) : 0;            \
		uint64_t rest = t->n - units * (16 / sizeof(T));                                   \
		spmtd_##name##_terms_run_(t, op, 0, units, 16);                                    \
		spmtd_##name##_terms_run_(t, op, units * 16, rest, sizeof(T));                     \
	}                                                                                          \
	/* `by`: this block's share of all count elements. */                                      \
	SPMTD_FN void spmtd_##name##_terms_by_(struct spmtd_terms_ *t, int op, uint64_t count,     \
		int scope, uint32_t index, uint32_t blocks)                                        \
	{                                                                                          \
		struct spmtd_range_ by = spmtd_share_by_(count * sizeof(T), index, blocks);        \
		t->from = by.from;                                                                 \
		t->n = by.n / sizeof(T);                                                           \
		t->lane = spmtd_lane_(scope);                                                      \
		t->lanes = spmtd_lanes_(scope);                                                    \
		spmtd_meet_(scope);                                                                \
		spmtd_##name##_terms_(t, op);                                                      \
		spmtd_meet_(scope);                                                                \
	}
SPMTD_TERMS(uint8, uint8_t, uint8_t, 8)
SPMTD_TERMS(int8, int8_t, int8_t, 8)
SPMTD_TERMS(schar, signed char, signed char, 8)
SPMTD_TERMS(uint16, uint16_t, uint16_t, 16)
SPMTD_TERMS(int16, int16_t, int16_t, 16)
SPMTD_TERMS(uint32, uint32_t, uint32_t, 32)
SPMTD_TERMS(int32, int32_t, int32_t, 32)
SPMTD_TERMS(uint64, uint64_t, uint64_t, 64)
SPMTD_TERMS(int64, int64_t, int64_t, 64)
SPMTD_TERMS(float, float, float, 32)
SPMTD_TERMS(double, double, double, 64)
SPMTD_TERMS(half, uint16_t, float, 16)
SPMTD_TERMS(bfloat16, uint16_t, float, 16)

/* X(name, C type, op, its number), for each type and the ops that channels and switches have. */
#define SPMTD_TERM_OPS(X, name, T)       \
	X(name, T, sum, SPMTD_OP_SUM_)   \
	X(name, T, prod, SPMTD_OP_PROD_) \
	X(name, T, min, SPMTD_OP_MIN_)   \
	X(name, T, max, SPMTD_OP_MAX_)
#define SPMTD_TERM_TYPES(X)                   \
	SPMTD_TERM_OPS(X, uint8, uint8_t)     \
	SPMTD_TERM_OPS(X, int8, int8_t)       \
	SPMTD_TERM_OPS(X, schar, signed char) \
	SPMTD_TERM_OPS(X, uint16, uint16_t)   \
	SPMTD_TERM_OPS(X, int16, int16_t)     \
	SPMTD_TERM_OPS(X, uint32, uint32_t)   \
	SPMTD_TERM_OPS(X, int32, int32_t)     \
	SPMTD_TERM_OPS(X, uint64, uint64_t)   \
	SPMTD_TERM_OPS(X, int64, int64_t)     \
	SPMTD_TERM_OPS(X, float, float)       \
	SPMTD_TERM_OPS(X, double, double)     \
	SPMTD_TERM_OPS(X, half, uint16_t)     \
	SPMTD_TERM_OPS(X, bfloat16, uint16_t)

#undef SPMTD_FLIGHT
#undef SPMTD_TERMS

SPMTD_END

#endif
