/* SPDX-License-Identifier: MIT */
#include "choose.h"

#include <unistd.h>

#include "include/spmt.h"
#include "src/base/env.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "src/device/gpu/vendor.h"

static const struct vendor_symbol verbs_symbols[] = {
#define X(field, symbol, optional, result, args) \
	{ #symbol, offsetof(struct verbs_api, field), optional },
	VERBS_CALLS(X)
#undef X
};

static void *_Atomic verbs_slot;

struct verbs_state *verbs_state(void)
{
	return process_state(&verbs_slot, sizeof(struct verbs_state));
}

bool verbs_likely(void)
{
	const struct env *env;

	return !env_get(&env) && (env->verbs_lib || !access("/sys/class/infiniband", F_OK));
}

int verbs_bind(struct verbs_state *state)
{
	static const char *const names[] = { "libibverbs.so.1" };
	char reason[VENDOR_REASON];
	const struct env *env;
	const char *missing;
	void *library;
	int rc = state->bound ? 0 : env_get(&env);

	if (rc || state->bound)
		return rc;
	rc = vendor_open(env->verbs_lib, names, ARRAY_SIZE(names), reason, &library);
	if (rc < 0)
		return fail(rc, "no libibverbs (SPMT_VERBS_LIB may name it): %s", reason);
	missing = vendor_bind(library, verbs_symbols, ARRAY_SIZE(verbs_symbols), &state->api);
	if (missing)
		return fail(SPMT_ERR_UNSUPPORTED,
			"libibverbs lacks %s (SPMT_VERBS_LIB may name another)", missing);
	state->bound = true;
	return 0;
}
