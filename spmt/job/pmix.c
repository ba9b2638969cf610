/* SPDX-License-Identifier: MIT */
#include "pmix.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "include/spmt.h"
#include "src/base/status.h"
#include "src/device/gpu/vendor.h"

#define KEY "spmt.uid"
#define VERSION_LEAST 3
#define PROCESSES_MOST (1 << 24)

static const struct vendor_symbol pmix_symbols[] = {
#define X(field, symbol, result, args) { #symbol, offsetof(struct pmix_api, field), false },
	PMIX_CALLS(X)
#undef X
};

/* ---- what can go wrong --------------------------------------------------------------------- */

static void doing(struct pmix *p, const char *call)
{
	atomic_store_explicit(&p->doing, call, memory_order_release);
}

/* Ends what doing() began. */
static int done(struct pmix *p, int status)
{
	const char *call = atomic_exchange(&p->doing, NULL), *text;

	if (status == PMIX_OK)
		return 0;
	text = p->api.error_string(status);
	text = text ? text : "unknown";
	if (!p->processes)
		return fail_call(-EIO, "spmt_init",
			"the PMIx server that started this process: %s: %s (%d)", call, text,
			status);
	return fail_call(status == PMIX_TIMED_OUT ? SPMT_ERR_TIMEOUT : -EIO, "spmt_init",
		"process %d of %d of the launcher's job: %s: %s (%d)", p->process, p->processes,
		call, text, status);
}

/* "OpenPMIx 4.2.2, .." A version that cannot be parsed counts as a new one. */
static int version_of(const char *text)
{
	size_t at = text ? strcspn(text, "0123456789") : 0;

	return text && text[at] ? (int)MIN_OF(strtol(text + at, NULL, 10), 1000) : 1000;
}

/* ---- values -------------------------------------------------------------------------------- */

static void value_free(pmix_value_t *value)
{
	if (value && value->type == PMIX_TYPE_BYTES)
		free(value->data.bo.bytes);
	free(value);
}

/* A count that the server has for `rank`; -1: it has none, or no sensible one. */
static int64_t pmix_number(struct pmix *p, uint32_t rank, const char *key)
{
	pmix_proc_t proc = p->self;
	pmix_value_t *value = NULL;
	int64_t n = -1;

	proc.rank = rank;
	doing(p, "PMIx_Get");
	if (p->api.get(&proc, key, NULL, 0, &value) == PMIX_OK && value) {
		if (value->type == PMIX_TYPE_UINT32)
			n = value->data.uint32;
		else if (value->type == PMIX_TYPE_UINT16)
			n = value->data.uint16;
		else if (value->type == PMIX_TYPE_INT)
			n = value->data.integer;
		value_free(value);
	}
	doing(p, NULL);
	return n;
}

/* ---- opening and closing ------------------------------------------------------------------- */

static int pmix_load(struct pmix_api *api, const char *path)
{
	static const char *const names[] = { "libpmix.so.2" };
	char reason[VENDOR_REASON];
	const char *missing;
	void *library;
	int rc = vendor_open(path, names, ARRAY_SIZE(names), reason, &library);

	if (rc < 0)
		return fail_call(rc, "spmt_init",
			"a PMIx launcher started this process, but there is no libpmix (SPMT_PMIX_LIB may name it): %s",
			reason);
	missing = vendor_bind(library, pmix_symbols, ARRAY_SIZE(pmix_symbols), api);
	if (missing)
		return fail_call(SPMT_ERR_UNSUPPORTED, "spmt_init",
			"libpmix lacks %s (SPMT_PMIX_LIB may name another)", missing);
	if (version_of(api->version()) < VERSION_LEAST)
		return fail_call(SPMT_ERR_UNSUPPORTED, "spmt_init",
			"libpmix is '%.64s', %d or later is needed (SPMT_PMIX_LIB may name another)",
			api->version(), VERSION_LEAST);
	return 0;
}

/* Finds out who this process is. Where the server knows nothing of nodes, each process counts as
   alone on its node. */
static int pmix_identify(struct pmix *p)
{
	int64_t size = pmix_number(p, (uint32_t)PMIX_ALL_RANKS, PMIX_KEY_JOB_SIZE);
	int64_t local = pmix_number(p, p->self.rank, PMIX_KEY_LOCAL_RANK);

	if (size < 1 || size > PROCESSES_MOST || p->self.rank >= size)
		return fail_call(-EPROTO, "spmt_init",
			"the launcher's PMIx server says rank %u of %lld processes", p->self.rank,
			(long long)size);
	p->process = (int)p->self.rank;
	p->processes = (int)size;
	p->local = local < 0 || local >= size ? 0 : (int)local;
	return 0;
}

int pmix_open(struct pmix *p, const char *path)
{
	int rc = pmix_load(&p->api, path);

	if (rc)
		return rc;
	doing(p, "PMIx_Init");
	rc = done(p, p->api.init(&p->self, NULL, 0));
	if (rc)
		return rc;
	rc = pmix_identify(p);
	if (rc) {
		pmix_close(p);
		return rc;
	}
	p->connected = true;
	return 0;
}

void pmix_close(struct pmix *p)
{
	doing(p, "PMIx_Finalize");
	p->api.finalize(NULL, 0);
	doing(p, NULL);
	p->connected = false;
}

/* ---- spreading ----------------------------------------------------------------------------- */

/* The requests as PMIx takes them: data gathered, and a bound in whole seconds. */
static size_t requests(int64_t timeout_ms, pmix_info_t info[2])
{
	memset(info, 0, 2 * sizeof(info[0]));
	memcpy(info[0].key, PMIX_KEY_COLLECT, sizeof(PMIX_KEY_COLLECT));
	info[0].value.type = PMIX_TYPE_BOOL;
	info[0].value.data.flag = true;
	memcpy(info[1].key, PMIX_KEY_TIMEOUT, sizeof(PMIX_KEY_TIMEOUT));
	info[1].value.type = PMIX_TYPE_INT;
	info[1].value.data.integer = (int)MIN_OF(timeout_ms / 1000 + 1, 1 << 30);
	return timeout_ms < 0 ? 1 : 2;
}

static int publish(struct pmix *p, void *bytes, size_t size)
{
	pmix_value_t value = { .type = PMIX_TYPE_BYTES };
	int rc = 0;

	value.data.bo.bytes = bytes;
	value.data.bo.size = size;
	if (p->process == 0) {
		doing(p, "PMIx_Put");
		rc = done(p, p->api.put(PMIX_SCOPE_GLOBAL, KEY, &value));
	}
	if (rc)
		return rc;
	doing(p, "PMIx_Commit");
	return done(p, p->api.commit());
}

static int pmix_fetch(
	struct pmix *p, void *bytes, size_t size, const pmix_info_t *timeout, size_t n)
{
	pmix_value_t *value = NULL;
	pmix_proc_t first = p->self;
	int rc;

	first.rank = 0;
	doing(p, "PMIx_Get");
	rc = done(p, p->api.get(&first, KEY, timeout, n, &value));
	if (rc)
		return rc;
	if (!value || value->type != PMIX_TYPE_BYTES || value->data.bo.size != size ||
		!value->data.bo.bytes)
		rc = fail_call(-EPROTO, "spmt_init",
			"process %d of %d: the launcher's PMIx server gave %zu bytes of type %u, not the %zu that process 0 has published",
			p->process, p->processes,
			value && value->type == PMIX_TYPE_BYTES ? value->data.bo.size : 0,
			value ? value->type : 0u, size);
	else
		memcpy(bytes, value->data.bo.bytes, size);
	value_free(value);
	return rc;
}

int pmix_spread(struct pmix *p, void *bytes, size_t size, int64_t timeout_ms)
{
	pmix_info_t info[2];
	size_t n = requests(timeout_ms, info);
	int rc = publish(p, bytes, size);

	if (rc)
		return rc;
	doing(p, "PMIx_Fence");
	rc = done(p, p->api.fence(NULL, 0, info, n));
	if (rc || p->process == 0)
		return rc;
	return pmix_fetch(p, bytes, size, &info[1], n - 1);
}
