/* SPDX-License-Identifier: MIT */
/* The machine at hand: what the backends say, then what hwloc or sysfs say. */
#include "load.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "src/base/mem.h"
#include "src/base/status.h"

static struct {
	struct topo *_Atomic loaded; /* never changes once set */
} cache;

static void copy_text(char *to, size_t size, const char *from)
{
	size_t n = strnlen(from, size - 1);

	memcpy(to, from, n);
	to[n] = '\0';
}

int topo_add_nic(struct topo *topo, const struct topo_nic *nic)
{
	struct topo_nic *n;

	for (int i = 0; i < topo->nnics; i++) {
		if (!strcmp(topo->nics[i].pci, nic->pci))
			return 0;
	}
	n = topo_add(&topo->nics, &topo->nnics, sizeof(*n));
	if (!n)
		return fail(-ENOMEM, "topology: no memory for a NIC");
	*n = *nic;
	return 0;
}

static int add_device(struct topo *topo, const struct backend *backend, int ordinal)
{
	struct device_desc desc = { 0 };
	struct topo_device *d;
	int rc = backend->describe(ordinal, &desc);

	if (rc)
		return rc;
	d = topo_add(&topo->devices, &topo->ndevices, sizeof(*d));
	if (!d)
		return fail(-ENOMEM, "topology: no memory for device %d", ordinal);
	d->index = (uint64_t)topo->ndevices - 1;
	d->ordinal = (uint64_t)ordinal;
	d->numa = desc.numa < 0 ? TOPO_NO_NUMA : (uint64_t)desc.numa;
	d->memory = desc.memory;
	d->units = (uint64_t)MAX_OF(desc.units, 0);
	d->threshold = backend->store_threshold;
	d->ipc = backend->ipc != NULL;
	copy_text(d->backend, sizeof(d->backend), backend->name);
	copy_text(d->name, sizeof(d->name), desc.name);
	copy_text(d->arch, sizeof(d->arch), desc.arch);
	copy_text(d->pci, sizeof(d->pci), desc.pci);
	memcpy(d->uuid, desc.uuid, sizeof(d->uuid));
	return 0;
}

/* The facts of one pair, as a rule for it alone. */
static void ask_pair(
	const struct backend *backend, int first, int from, int to, struct topo_peers *rule)
{
	*rule = (struct topo_peers){ .from = { first + from, first + from },
		.to = { first + to, first + to },
		.link = backend->traits & DEVICE_HOST_ACCESS ? TOPO_LINK_HOST : TOPO_LINK_UNKNOWN };
	if (from != to && backend->peer_check(from, to, rule->reason) && !rule->reason[0])
		copy_text(rule->reason, sizeof(rule->reason), "refused");
}

static bool same_facts(const struct topo_peers *a, const struct topo_peers *b)
{
	return a->link == b->link && !strcmp(a->reason, b->reason);
}

/* Takes a rule for part of a row into the list, or into the rule above it that says the same of
   the row before. */
static int add_rule(struct topo *topo, const struct topo_peers *rule)
{
	struct topo_peers *last = topo->npeers ? &topo->peers[topo->npeers - 1] : NULL;

	if (last && last->from[1] == rule->from[0] - 1 && last->to[0] == rule->to[0] &&
		last->to[1] == rule->to[1] && same_facts(last, rule)) {
		last->from[1] = rule->from[1];
		return 0;
	}
	if (topo->npeers == TOPO_MAX_PEERS)
		return fail(-E2BIG, "topology: more than %d kinds of pairs", TOPO_MAX_PEERS);
	last = topo_add(&topo->peers, &topo->npeers, sizeof(*last));
	if (!last)
		return fail(-ENOMEM, "topology: no memory for what pairs of devices can do");
	*last = *rule;
	return 0;
}

/* One row of the matrix of n devices. The device itself says what its neighbour says, so that
   rows stay whole. */
static int add_row(struct topo *topo, const struct backend *backend, int first, int n, int from)
{
	struct topo_peers run = { 0 }, next;
	int rc = 0;

	for (int to = 0; !rc && to < n; to++) {
		ask_pair(backend, first, from, to, &next);
		if (to == 0) {
			run = next;
		} else if (to == from || same_facts(&run, &next)) {
			run.to[1]++;
		} else if (to == 1 && from == 0) {
			run = next;
			run.to[0] = first;
		} else {
			rc = add_rule(topo, &run);
			run = next;
		}
	}
	return rc ? rc : add_rule(topo, &run);
}

static int load_backend(struct topo *topo, const struct backend *backend)
{
	int first = topo->ndevices, n = 0, rc = backend->count(&n);

	n = MIN_OF(n, TOPO_MAX_DEVICES - first);
	for (int i = 0; !rc && i < n; i++)
		rc = add_device(topo, backend, i);
	for (int i = 0; !rc && n > 1 && i < n; i++)
		rc = add_row(topo, backend, first, n, i);
	return rc;
}

int topo_load_devices(struct topo *topo)
{
	const struct backend *backend;
	int rc = 0;

	for (size_t i = 0; !rc && (backend = device_backend(i)); i++) {
		if (!backend->load())
			rc = load_backend(topo, backend);
	}
	return rc;
}

static int load_host(struct topo *topo)
{
	struct topo_host *host = topo_add(&topo->hosts, &topo->nhosts, sizeof(*host));

	if (!host)
		return fail(-ENOMEM, "topology: no memory for a host");
	if (gethostname(host->name, sizeof(host->name) - 1) || !host->name[0])
		copy_text(host->name, sizeof(host->name), "localhost");
	return 0;
}

static int load_machine(struct topo *topo)
{
#if SPMT_HAVE_HWLOC
	int rc = topo_load_hwloc(topo);

	if (rc != -EIO)
		return rc;
#endif
	return topo_load_sys("/sys", topo);
}

static int load(struct topo **out)
{
	struct topo *topo = mem_calloc(1, sizeof(*topo));
	int rc;

	if (!topo)
		return fail(-ENOMEM, "topology: no memory");
	rc = load_host(topo);
	if (!rc)
		rc = topo_load_devices(topo);
	if (!rc)
		rc = load_machine(topo);
	if (rc) {
		topo_free(topo);
		return rc;
	}
	*out = topo;
	return 0;
}

/* Two threads may both load; the first to publish wins. No lock, so that a forked child can
   never find it held. */
int topo_get(const struct topo **topo)
{
	struct topo *have = atomic_load_explicit(&cache.loaded, memory_order_acquire);
	struct topo *mine = NULL;
	int rc;

	if (!have) {
		rc = load(&mine);
		if (rc)
			return rc;
		if (atomic_compare_exchange_strong(&cache.loaded, &have, mine))
			have = mine;
		else
			topo_free(mine);
	}
	*topo = have;
	return 0;
}
