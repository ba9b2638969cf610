/* SPDX-License-Identifier: MIT */
/* What wakes the library's threads in the stand-in for libibverbs. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fake_wire.h"

/* The descriptor that the library sleeps on. */
int fake_waker_open(struct fake_waker *waker)
{
	int ends[2];

	if (!getenv("SPMT_FAKE_UNPLUG"))
		return waker->other = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	if (pipe2(ends, O_CLOEXEC))
		abort();
	waker->other = ends[1];
	return ends[0];
}

static void waker_unplug(struct fake_waker *waker)
{
	close(waker->other);
	waker->other = -1;
}

void fake_waker_close(struct fake_waker *waker, int fd)
{
	if (waker->other >= 0 && waker->other != fd)
		waker_unplug(waker);
	close(fd);
}

/* By an interrupt, which is no cancellation point of whoever has posted. */
void fake_wake(const struct fake_waker *waker)
{
	uint64_t one = 1;

	if (waker->other >= 0 && syscall(SYS_write, waker->other, &one, sizeof(one)) < 0)
		abort();
}

void fake_verbs_unplug(void)
{
	pthread_mutex_lock(&wire.lock);
	for (int i = 0; i < FAKE_CONTEXTS; i++)
		if (wire.contexts[i]) {
			waker_unplug(&wire.contexts[i]->waker);
			if (wire.contexts[i]->channel)
				waker_unplug(&wire.contexts[i]->channel->waker);
		}
	pthread_mutex_unlock(&wire.lock);
}
