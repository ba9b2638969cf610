/* SPDX-License-Identifier: MIT */
/* Devices, failures on purpose. */
#include "fake.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
struct fake_counts fake_count;

static struct {
	pthread_mutex_t lock;
	char name[64];
	int left, result, seen;
	bool capturing;
	int pid;
	struct {
		const char *name;
		int calls;
	} made[160]; /* more than there are names */
} armed = { .lock = PTHREAD_MUTEX_INITIALIZER };

int fake_devices(void)
{
	const char *text = getenv("SPMT_FAKE_DEVICES");
	int n = text ? atoi(text) : 4;

	return n < 0 ? 0 : n > FAKE_DEVICES ? FAKE_DEVICES : n;
}

bool fake_lacks(int dev, const char *what)
{
	const char *without = getenv("SPMT_FAKE_WITHOUT"), *old = getenv("SPMT_FAKE_OLD");

	return without && strstr(without, what) && (!old || atoi(old) == dev);
}

bool fake_same_process(void)
{
	int me = (int)getpid(), none = 0;

	return __atomic_compare_exchange_n(
		       &armed.pid, &none, me, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST) ||
		none == me;
}

void fake_live(struct fake_counts *out)
{
	pthread_mutex_lock(&fake_lock);
	*out = fake_count;
	pthread_mutex_unlock(&fake_lock);
}

void fake_fail(const char *name, int nth, int result)
{
	pthread_mutex_lock(&armed.lock);
	strncpy(armed.name, name, sizeof(armed.name) - 1);
	armed.left = nth;
	armed.result = result;
	armed.seen = 0;
	pthread_mutex_unlock(&armed.lock);
}

int fake_calls(void)
{
	int seen;

	pthread_mutex_lock(&armed.lock);
	seen = armed.seen;
	pthread_mutex_unlock(&armed.lock);
	return seen;
}

int fake_made(const char *name)
{
	int calls = 0;

	pthread_mutex_lock(&armed.lock);
	for (int i = 0; armed.made[i].name; i++)
		if (!name || !strcmp(armed.made[i].name, name))
			calls += armed.made[i].calls;
	pthread_mutex_unlock(&armed.lock);
	return calls;
}

/* Under armed.lock. */
static void count_call(const char *name)
{
	int i = 0;

	while (armed.made[i].name && strcmp(armed.made[i].name, name))
		i++;
	armed.made[i].name = name;
	armed.made[i].calls++;
}

int fake_call(const char *name)
{
	int result = 0;

	pthread_mutex_lock(&armed.lock);
	count_call(name);
	if (!strcmp(name, armed.name)) {
		armed.seen++;
		if (armed.left < 0 || (armed.left && !--armed.left))
			result = armed.result;
	}
	pthread_mutex_unlock(&armed.lock);
	return result;
}

void fake_set_capturing(bool capturing)
{
	__atomic_store_n(&armed.capturing, capturing, __ATOMIC_SEQ_CST);
}

bool fake_capturing(void)
{
	return __atomic_load_n(&armed.capturing, __ATOMIC_SEQ_CST);
}
