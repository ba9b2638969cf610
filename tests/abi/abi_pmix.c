/* SPDX-License-Identifier: MIT */
/* Compiling is the test: abi_pmix.h says of libpmix what pmix.h says. */
#include <pmix.h>

#define ABI_PMIX_VENDOR_TYPES
#include "spmt/job/abi_pmix.h"

#define X(ours, theirs, value) \
	_Static_assert((long long)(int)(theirs) == (long long)(int)(value), #theirs);
PMIX_VALUES(X)
#undef X

#define SAME_KEY(ours, theirs) _Static_assert(!__builtin_strcmp(ours, theirs), ours)
SAME_KEY(PMIX_KEY_JOB_SIZE, PMIX_JOB_SIZE);
SAME_KEY(PMIX_KEY_LOCAL_RANK, PMIX_LOCAL_RANK);
SAME_KEY(PMIX_KEY_COLLECT, PMIX_COLLECT_DATA);
SAME_KEY(PMIX_KEY_TIMEOUT, PMIX_TIMEOUT);

#define X(field, symbol, result, args)                                                          \
	_Static_assert(__builtin_types_compatible_p(                                            \
			       __typeof__(((struct pmix_api *)0)->field), __typeof__(&symbol)), \
		#symbol);
PMIX_CALLS(X)
#undef X

#define FIELD(member, type)                                                           \
	_Static_assert(__builtin_types_compatible_p(                                  \
			       __typeof__(((pmix_value_t *)0)->data.member), type) && \
			offsetof(pmix_value_t, data.member) == 8,                     \
		#member)
FIELD(flag, bool);
FIELD(integer, int);
FIELD(uint16, uint16_t);
FIELD(uint32, uint32_t);
FIELD(bo.bytes, char *);
