/* SPDX-License-Identifier: MIT */
/* Compiling is the test: abi_hsakmt.h says of libhsakmt what hsakmt.h says. */
#include <hsakmt.h>

#define ABI_HSAKMT_VENDOR_TYPES
#include "src/device/sdma/abi_hsakmt.h"

#define X(ours, theirs, value) _Static_assert((long long)(theirs) == (long long)(ours), #theirs);
KMT_VALUES(X)
#undef X

#define X(field, symbol, result, args)                                                         \
	_Static_assert(__builtin_types_compatible_p(                                           \
			       __typeof__(((struct kmt_api *)0)->field), __typeof__(&symbol)), \
		#symbol);
KMT_CALLS(X)
#undef X

/* Types that abi_hsakmt.h has of its own. */
_Static_assert(sizeof(HSAKMT_STATUS) == 4 && sizeof(HSA_QUEUE_TYPE) == 4, "enums");
_Static_assert(sizeof(HSA_QUEUE_PRIORITY) == 8,
	"its largest value does not fit 32 bits beside a negative one");
_Static_assert(sizeof(HSA_QUEUEID) == 8, "HSA_QUEUEID");
_Static_assert(sizeof(HsaMemFlags) == 4, "HsaMemFlags");
_Static_assert(sizeof(HsaSystemProperties) == 16, "HsaSystemProperties");
_Static_assert(sizeof(HsaQueueResource) == 40, "HsaQueueResource");
_Static_assert(offsetof(HsaQueueResource, Queue_DoorBell_aql) == 8, "doorbell");
_Static_assert(offsetof(HsaQueueResource, Queue_write_ptr_aql) == 16, "write");
_Static_assert(offsetof(HsaQueueResource, Queue_read_ptr_aql) == 24, "read");

/* Bits of HsaMemFlags have no offset that could be asked for: the ones of KMT_MEMORY_* were read from the header. */
