/* SPDX-License-Identifier: MIT */
/*
 * What job/pmix.c knows of libpmix, versions 3 to 6, declared here so that building needs no
 * PMIx. tests/abi/abi_pmix.c compares every line with pmix.h where that is installed; it defines the
 * types as the header's own first. Version 2 has a smaller pmix_value.
 */
#ifndef SPMT_ABI_PMIX_H
#define SPMT_ABI_PMIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(ours, the header's, value) */
#define PMIX_VALUES(X)                                \
	X(PMIX_OK, PMIX_SUCCESS, 0)                   \
	X(PMIX_TIMED_OUT, PMIX_ERR_TIMEOUT, -24)      \
	X(PMIX_ALL_RANKS, PMIX_RANK_WILDCARD, -2)     \
	X(PMIX_SCOPE_GLOBAL, PMIX_GLOBAL, 3)          \
	X(PMIX_TYPE_BOOL, PMIX_BOOL, 1)               \
	X(PMIX_TYPE_INT, PMIX_INT, 6)                 \
	X(PMIX_TYPE_UINT16, PMIX_UINT16, 13)          \
	X(PMIX_TYPE_UINT32, PMIX_UINT32, 14)          \
	X(PMIX_TYPE_BYTES, PMIX_BYTE_OBJECT, 27)      \
	X(PMIX_SPACE_SIZE, (PMIX_MAX_NSLEN) + 1, 256) \
	X(PMIX_KEY_SIZE, (PMIX_MAX_KEYLEN) + 1, 512)

enum {
#define X(ours, theirs, value) ours = value,
	PMIX_VALUES(X)
#undef X
};

#define PMIX_KEY_JOB_SIZE "pmix.job.size"
#define PMIX_KEY_LOCAL_RANK "pmix.lrank"
#define PMIX_KEY_COLLECT "pmix.collect"
#define PMIX_KEY_TIMEOUT "pmix.timeout"

#ifndef ABI_PMIX_VENDOR_TYPES
typedef struct pmix_proc {
	char nspace[PMIX_SPACE_SIZE];
	uint32_t rank;
} pmix_proc_t;
typedef struct pmix_value {
	uint16_t type;
	union {
		bool flag;
		int integer;
		uint16_t uint16;
		uint32_t uint32;
		struct {
			char *bytes;
			size_t size;
		} bo;
		uint64_t largest[3];
	} data;
} pmix_value_t;
typedef struct pmix_info {
	char key[PMIX_KEY_SIZE];
	uint32_t flags;
	pmix_value_t value;
} pmix_info_t;
#endif

_Static_assert(sizeof(pmix_proc_t) == 260 && offsetof(pmix_proc_t, rank) == 256, "proc");
_Static_assert(sizeof(pmix_value_t) == 32 && offsetof(pmix_value_t, data) == 8 &&
		offsetof(pmix_value_t, data.bo.bytes) == 8 &&
		offsetof(pmix_value_t, data.bo.size) == 16,
	"value");
_Static_assert(sizeof(pmix_info_t) == 552 && offsetof(pmix_info_t, flags) == 512 &&
		offsetof(pmix_info_t, value) == 520,
	"info");

/* X(field, symbol, result, arguments) */
#define PMIX_CALLS(X)                                                                             \
	X(init, PMIx_Init, int, (pmix_proc_t * self, pmix_info_t * info, size_t ninfo))           \
	X(finalize, PMIx_Finalize, int, (const pmix_info_t *info, size_t ninfo))                  \
	X(put, PMIx_Put, int, (uint8_t scope, const char *key, pmix_value_t *value))              \
	X(commit, PMIx_Commit, int, (void))                                                       \
	X(fence, PMIx_Fence, int,                                                                 \
		(const pmix_proc_t *procs, size_t nprocs, const pmix_info_t *info, size_t ninfo)) \
	X(get, PMIx_Get, int,                                                                     \
		(const pmix_proc_t *proc, const char *key, const pmix_info_t *info, size_t ninfo, \
			pmix_value_t **value))                                                    \
	X(error_string, PMIx_Error_string, const char *, (int status))                            \
	X(version, PMIx_Get_version, const char *, (void))

struct pmix_api {
#define X(field, symbol, result, args) result(*field) args;
	PMIX_CALLS(X)
#undef X
};

#endif
