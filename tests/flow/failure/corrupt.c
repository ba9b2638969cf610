/* SPDX-License-Identifier: MIT */
/*
 * Preloaded by tools.sh: the calls that CORRUPT names deliver wrong data, so that the checks in the tools can be seen to fail.
 * put and put_signal send a block whose last byte is another; get and all_reduce spoil what arrived; atomic loses writes.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "spmt.h"

static int named(const char *call)
{
	const char *want = getenv("CORRUPT");

	return want && !strcmp(want, call);
}

/* ISO C knows no cast from an object's address to a function's. */
static void *real(const char *name, void *function)
{
	void *symbol = dlsym(RTLD_NEXT, name);

	memcpy(function, &symbol, sizeof(symbol));
	return symbol;
}

static unsigned char *spoiled(const void *src, size_t size)
{
	unsigned char *copy = malloc(size + 1);

	if (!copy)
		return NULL;
	memcpy(copy, src, size);
	if (size)
		copy[size - 1] ^= 0x10;
	return copy;
}

int spmt_put(spmt_comm *comm, void *dst, const void *src, size_t size, int pe)
{
	int (*put)(spmt_comm *, void *, const void *, size_t, int);
	unsigned char *copy;
	int rc;

	if (!real("spmt_put", &put))
		return -ENOSYS;
	if (!named("put"))
		return put(comm, dst, src, size, pe);
	copy = spoiled(src, size);
	rc = copy ? put(comm, dst, copy, size, pe) : -ENOMEM;
	free(copy);
	return rc;
}

int spmt_put_signal(spmt_comm *comm, void *dst, const void *src, size_t size, uint64_t *sig,
	uint64_t val, enum spmt_signal_op op, int pe)
{
	int (*put)(spmt_comm *, void *, const void *, size_t, uint64_t *, uint64_t,
		enum spmt_signal_op, int);
	unsigned char *copy;
	int rc;

	if (!real("spmt_put_signal", &put))
		return -ENOSYS;
	if (!named("put_signal"))
		return put(comm, dst, src, size, sig, val, op, pe);
	copy = spoiled(src, size);
	rc = copy ? put(comm, dst, copy, size, sig, val, op, pe) : -ENOMEM;
	free(copy);
	return rc;
}

int spmt_get(spmt_comm *comm, void *dst, const void *src, size_t size, int pe)
{
	int (*get)(spmt_comm *, void *, const void *, size_t, int);
	int rc;

	if (!real("spmt_get", &get))
		return -ENOSYS;
	rc = get(comm, dst, src, size, pe);
	if (!rc && size && named("get"))
		((unsigned char *)dst)[size - 1] ^= 0x10;
	return rc;
}

int spmt_all_reduce(spmt_comm *comm, void *dst, const void *src, size_t count, enum spmt_type type,
	enum spmt_op op, spmt_stream stream)
{
	int (*reduce)(spmt_comm *, void *, const void *, size_t, enum spmt_type, enum spmt_op,
		spmt_stream);
	int rc;

	if (!real("spmt_all_reduce", &reduce))
		return -ENOSYS;
	rc = reduce(comm, dst, src, count, type, op, stream);
	if (rc || !named("all_reduce"))
		return rc;
	rc = spmt_quiet(comm);
	if (count)
		*(unsigned char *)dst ^= 0x10;
	return rc;
}

int spmt_atomic(spmt_comm *comm, enum spmt_amo amo, enum spmt_type type, void *target,
	const void *operand, const void *compare, void *fetched, int pe)
{
	int (*atomic)(spmt_comm *, enum spmt_amo, enum spmt_type, void *, const void *,
		const void *, void *, int);

	if (!real("spmt_atomic", &atomic))
		return -ENOSYS;
	if (named("atomic"))
		amo = SPMT_AMO_FETCH;
	return atomic(comm, amo, type, target, operand, compare,
		fetched ? fetched : &(uint64_t){ 0 }, pe);
}
