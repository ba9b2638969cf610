/* SPDX-License-Identifier: MIT */
/* Any bytes as what a user's all-gather left: cards of up to 8 processes, some put right, one of them this process's. */
#include <stdlib.h>
#include <string.h>

#include "spmt/job/user.h"
#include "src/base/status.h"

enum { MOST = 8 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(bool promise)
{
	if (!promise)
		abort();
}

static void put_right(struct card *card, int process, int processes)
{
	static spmt_uid uid;

	if (!uid.bytes[0])
		need(!spmt_uid_create(&uid));
	card->magic = CARD_MAGIC;
	card->version = CARD_VERSION;
	card->process = process;
	card->processes = processes;
	card->nranks = processes;
	if (!process)
		card->uid = uid;
}

/* data: processes, process, who is put right (a bit each), whose code is cleared, then the cards. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int processes, process, local = -1;
	struct card all[MOST] = { 0 };
	struct card mine;
	struct uid uid;

	if (size < 4)
		return 0;
	processes = data[0] % MOST + 1;
	process = data[1] % processes;
	memcpy(all, data + 4, size - 4 < sizeof(all) ? size - 4 : sizeof(all));
	for (int p = 0; p < processes; p++) {
		if (data[2] >> p & 1 || p == process)
			put_right(&all[p], p, processes);
		if (data[3] >> p & 1)
			all[p].code = 0;
	}
	mine = all[process];
	if (user_read(&mine, all, &uid, &local)) {
		need(*status_sentence() && local == -1);
		for (const char *c = status_sentence(); *c; c++)
			need(*c >= ' ' && *c < 127);
		return 0;
	}
	need(local >= 0 && local <= process);
	need(uid.id[0] | uid.id[1]);
	return 0;
}
