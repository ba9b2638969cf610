/* SPDX-License-Identifier: MIT */
#include "user.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"

int user_check(const struct spmt_bootstrap *given, int rank, struct spmt_bootstrap *user)
{
	char what[48];

	snprintf(what, sizeof(what), "spmt_init: rank %d: attr.bootstrap", rank);
	if (given->size < sizeof(*user))
		return fail_call(
			-EINVAL, what, "size %zu is below %zu", given->size, sizeof(*user));
	if (given->size > STRUCT_MOST)
		return fail_call(-EINVAL, what, "size %zu is above %d", given->size, STRUCT_MOST);
	for (size_t i = sizeof(*user); i < given->size; i++)
		if (((const unsigned char *)given)[i])
			return fail_call(-EINVAL, what,
				"size %zu: byte %zu asks for something this library (%s) does not know",
				given->size, i, spmt_version());
	if (given->processes < 1)
		return fail_call(-EINVAL, what, "processes %d: a job has at least one process",
			given->processes);
	if (given->process < 0 || given->process >= given->processes)
		return fail_call(-EINVAL, what, "process %d is not in 0 .. %d", given->process,
			given->processes - 1);
	if (!given->all_gather)
		return fail_call(-EINVAL, what, "all_gather is NULL");
	*user = *given;
	return 0;
}

static void card_fill(const struct spmt_bootstrap *user, int nranks, struct card *card)
{
	*card = (struct card){ .magic = CARD_MAGIC,
		.version = CARD_VERSION,
		.process = user->process,
		.processes = user->processes,
		.nranks = nranks };
	card->code = process_host(card->host);
	if (!card->code && user->process == 0)
		card->code = uid_create("spmt_init", &card->uid);
	if (card->code)
		snprintf(card->why, sizeof(card->why), "%.*s", (int)sizeof(card->why) - 1,
			status_sentence());
}

/* Another process's reason: bytes from outside, shown to people. */
static int gave_up(const struct card *card)
{
	char why[sizeof(card->why)];
	size_t n = strnlen(card->why, sizeof(why) - 1);

	for (size_t i = 0; i < n; i++)
		why[i] = card->why[i] >= ' ' && card->why[i] < 127 ? card->why[i] : '?';
	why[n] = '\0';
	return fail_call(card->code, "spmt_init", "attr.bootstrap: process %d failed: %s",
		card->process, why);
}

static int card_check(const struct card *card, const struct card *mine, int place)
{
	if (card->magic != CARD_MAGIC || card->process != place ||
		card->processes != mine->processes || card->code > 0)
		return fail_call(-EPROTO, "spmt_init",
			"process %d: attr.bootstrap's all_gather left in place %d of %d what no process has given there",
			mine->process, place, mine->processes);
	if (card->version != CARD_VERSION)
		return fail_call(-EPROTO, "spmt_init",
			"process %d: attr.bootstrap: process %d has another library (%u, here %u)",
			mine->process, place, card->version, CARD_VERSION);
	if (card->nranks != mine->nranks)
		return fail_call(SPMT_ERR_MISMATCH, "spmt_init",
			"attr.nranks differs: process %d passed %d, process %d passed %d", place,
			card->nranks, mine->process, mine->nranks);
	return 0;
}

int user_read(const struct card *mine, const struct card *all, struct uid *uid, int *local)
{
	int rc = 0, before = 0;

	if (memcmp(&all[mine->process], mine, sizeof(*mine)))
		rc = fail_call(-EPROTO, "spmt_init",
			"process %d: attr.bootstrap's all_gather left in place %d other bytes than this process gave",
			mine->process, mine->process);
	for (int p = 0; !rc && p < mine->processes; p++) {
		rc = card_check(&all[p], mine, p);
		before += p < mine->process && !memcmp(all[p].host, mine->host, sizeof(mine->host));
	}
	for (int p = 0; !rc && p < mine->processes; p++)
		rc = all[p].code ? gave_up(&all[p]) : 0;
	if (!rc)
		rc = uid_read("spmt_init: attr.bootstrap", &all[0].uid, uid);
	if (!rc)
		*local = before;
	return rc;
}

int user_spread(
	const struct spmt_bootstrap *user, int nranks, struct uid *uid, struct job_info *launch)
{
	struct card mine, *all = mem_calloc((size_t)user->processes, sizeof(*all));
	int rc, local;

	if (!all)
		return fail_call(-ENOMEM, "spmt_init",
			"attr.bootstrap: out of memory for %d processes", user->processes);
	card_fill(user, nranks, &mine);
	rc = user->all_gather(user->ctx, &mine, sizeof(mine), all);
	if (rc)
		rc = fail_call(rc < 0 ? rc : -EIO, "spmt_init",
			"attr.bootstrap's all_gather of process %d of %d failed: %s (%d)",
			user->process, user->processes, status_text(rc), rc);
	else
		rc = user_read(&mine, all, uid, &local);
	explicit_bzero(all, (size_t)user->processes * sizeof(*all));
	explicit_bzero(&mine, sizeof(mine));
	mem_free(all);
	if (!rc)
		*launch = (struct job_info){ user->process, user->processes, local };
	return rc;
}
