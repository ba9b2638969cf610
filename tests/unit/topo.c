/* SPDX-License-Identifier: MIT */
/* Recordings: read, written, refused with the line that is wrong; and what is read of the
   machine at hand. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/fault.h"
#include "src/base/mem.h"
#include "src/base/status.h"
#include "tools/topo/load.h"

static const char machine[] =
	"# a comment, and a blank line\n"
	"\n"
	"spmt-topo 1\n"
	"host one cpus 16\n"
	"\tnuma 1  cpus 8\tmemory 3M\n"
	"device 0 backend hip name \"Some GPU\" arch gfx942 pci 0000:0c:00.0 numa 1"
	" memory 192G units 304 threshold 64K"
	" uuid 000102030405060708090a0b0c0d0eff ipc yes\n"
	"device 1 backend hip ordinal 7\n"
	"nic mlx5_0 pci 0000:0d:00.0 numa 1 gbits 400 rdma yes\n"
	"host two cpus 1\n"
	"device 0 backend host\n"
	"device 1 backend host\n"
	"device 2 backend host\n"
	"peers 0-2 to 0-2 link pcie\n"
	"peers 1 to 2 link host refused \"not this way\"\n"
	"ranks 0 devices 1\n"
	"ranks 1-2 devices 0-1 on 1 process 9\n"
	"ranks 3-4 devices 2 on 1 process 8";

static struct topo *parse(const char *text)
{
	struct topo *topo = NULL;

	cr_assert_eq(topo_parse(text, strlen(text), "t", &topo), 0, "%s", status_sentence());
	return topo;
}

Test(topo, every_field)
{
	struct topo *t = parse(machine);
	const struct topo_device *d = t->devices;

	cr_expect(t->nhosts == 2 && t->nnumas == 1 && t->ndevices == 5 && t->nnics == 1);
	cr_expect_str_eq(t->hosts[0].name, "one");
	cr_expect_eq(t->hosts[0].cpus, 16);
	cr_expect(t->numas[0].node == 1 && t->numas[0].cpus == 8 && t->numas[0].memory == 3 << 20);
	cr_expect_str_eq(d->backend, "hip");
	cr_expect_str_eq(d->name, "Some GPU");
	cr_expect_str_eq(d->arch, "gfx942");
	cr_expect_str_eq(d->pci, "0000:0c:00.0");
	cr_expect(d->host == 0 && d->index == 0 && d->ordinal == 0 && d->numa == 1);
	cr_expect(d->memory == 192ull << 30 && d->units == 304 && d->threshold == 65536 && d->ipc);
	cr_expect(d->uuid[0] == 0 && d->uuid[1] == 1 && d->uuid[14] == 14 && d->uuid[15] == 255);
	cr_expect(d[1].ordinal == 7 && d[1].index == 1 && !d[1].ipc);
	cr_expect(d[1].numa == TOPO_NO_NUMA && d[1].threshold == UINT64_MAX);
	cr_expect(d[2].host == 1 && d[2].index == 0 && d[4].ordinal == 2);
	cr_expect_str_eq(t->nics[0].name, "mlx5_0");
	cr_expect(t->nics[0].gbits == 400 && t->nics[0].rdma && t->nics[0].numa == 1);
	topo_free(t);
}

Test(topo, peers_and_ranks)
{
	struct topo *t = parse(machine);

	cr_expect_null(topo_peers(t, 0, 1), "nothing is recorded of them");
	cr_expect_null(topo_peers(t, 2, 2));
	cr_expect_null(topo_peers(t, 0, 2), "two hosts");
	cr_expect_eq(topo_peers(t, 2, 3)->link, TOPO_LINK_PCIE);
	cr_expect_str_empty(topo_peers(t, 4, 3)->reason);
	cr_expect_str_eq(topo_peers(t, 3, 4)->reason, "not this way");
	cr_expect_eq(topo_nranks(t), 5);
	cr_expect(topo_rank(t, 0).device == 1 && topo_rank(t, 0).process == 0);
	cr_expect(topo_rank(t, 1).device == 2 && topo_rank(t, 2).device == 3);
	cr_expect(topo_rank(t, 2).process == 9 && topo_rank(t, 3).process == 8);
	cr_expect(topo_rank(t, 3).device == 4 && topo_rank(t, 4).device == 4);
	topo_free(t);
	t = parse("spmt-topo 1\nhost a cpus 1\ndevice 0 backend host\ndevice 1 backend host\n");
	cr_expect_eq(topo_nranks(t), 2, "a rank a device where no ranks are given");
	cr_expect_eq(topo_rank(t, 1).device, 1);
	topo_free(t);
}

/* Writes, reads back and writes again. */
static void round_trip(const struct topo *t)
{
	char *text, *again;
	struct topo *copy;

	cr_assert_eq(topo_format(t, &text), 0);
	copy = parse(text);
	cr_assert_eq(topo_format(copy, &again), 0);
	cr_expect_str_eq(text, again);
	cr_expect_eq(copy->ndevices, t->ndevices);
	if (t->ndevices)
		cr_expect_arr_eq(
			copy->devices, t->devices, (size_t)t->ndevices * sizeof(*t->devices));
	if (t->npeers)
		cr_expect_arr_eq(copy->peers, t->peers, (size_t)t->npeers * sizeof(*t->peers));
	if (t->nranks)
		cr_expect_arr_eq(copy->ranks, t->ranks, (size_t)t->nranks * sizeof(*t->ranks));
	if (t->nnics)
		cr_expect_arr_eq(copy->nics, t->nics, (size_t)t->nnics * sizeof(*t->nics));
	mem_free(text);
	mem_free(again);
	topo_free(copy);
}

Test(topo, round_trip)
{
	struct topo *t = parse(machine);

	round_trip(t);
	topo_free(t);
}

Test(topo, fixtures)
{
	const char *source = getenv("SPMT_SOURCE");
	char path[512];
	struct dirent *entry;
	int n = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/tests/fixtures", source ? source : ".");
	dir = opendir(path);
	cr_assert(dir, "%s", path);
	while ((entry = readdir(dir))) {
		const char *dot = strrchr(entry->d_name, '.');
		struct topo *t;

		if (!dot || strcmp(dot, ".topo"))
			continue;
		snprintf(path, sizeof(path), "%s/tests/fixtures/%s", source ? source : ".",
			entry->d_name);
		cr_assert_eq(topo_read(path, &t), 0, "%s", status_sentence());
		round_trip(t);
		topo_free(t);
		n++;
	}
	closedir(dir);
	cr_expect_geq(n, 8);
}

/* A text with one line after a good beginning, what is wrong with it, and where. */
static void refuse(const char *line, const char *what)
{
	struct topo *topo = NULL;
	char text[4096];

	snprintf(text, sizeof(text), "spmt-topo 1\nhost a cpus 1\ndevice 0 backend host\n%s\n",
		line);
	cr_expect_eq(topo_parse(text, strlen(text), "f.topo", &topo), -EINVAL, "%s", line);
	cr_expect_null(topo);
	cr_expect(strstr(status_sentence(), "f.topo:4: "), "%s: %s", line, status_sentence());
	cr_expect(strstr(status_sentence(), what), "%s: %s", line, status_sentence());
}

Test(topo, lines_refused)
{
	char longest[600];

	refuse("gpu 0", "gpu is not known");
	refuse("host", "host has no value");
	refuse("host b", "needs cpus");
	refuse("host b cpus 1 cpus 2", "cpus is given twice");
	refuse("host b cpus 1 colour red", "no colour");
	refuse("host \"\" cpus 1", "not understood");
	refuse("host b cpus -1", "-1");
	refuse("host b cpus 1x", "1x");
	refuse("host b cpus 18446744073709551616", "184467");
	refuse("host b cpus 18446744073709551615", "184467");
	refuse("numa 0 memory 9999999999G", "memory");
	refuse("numa 0 memory 1Q", "memory");
	refuse("device 0 backend host", "device 0 where 1 is due");
	refuse("device 2 backend host", "device 2 where 1 is due");
	refuse("device 1", "needs backend");
	refuse("device 1 backend longname", "backend");
	refuse("device 1 backend host ordinal 4294967296", "ordinal");
	refuse("device 1 backend host uuid 0102", "uuid");
	refuse("device 1 backend host uuid 000102030405060708090a0b0c0d0eXX", "uuid");
	refuse("device 1 backend host ipc maybe", "ipc");
	refuse("device 1 backend \"host", "quote");
	refuse("device 1 backend ho\"st", "quote");
	refuse("device 1 backend \"host\"x", "quote");
	refuse("nic a pci 0000:00:00.0.0.0.0.0", "pci");
	refuse("peers 0 to 1 link pcie", "device 1 where the host has 1");
	refuse("peers 1-0 to 0 link pcie", "peers");
	refuse("peers 0- to 0 link pcie", "peers");
	refuse("peers 0 to 0 link rope", "rope");
	refuse("peers 0 to 0", "needs link");
	refuse("ranks 1 devices 0", "rank 1 where 0 is due");
	refuse("ranks 0 devices 1", "device 1 where host 0 has 1");
	refuse("ranks 0 devices 0 on 1", "where host 1 has 0");
	refuse("ranks 0-5000 devices 0", "ranks");
	refuse("a b c d e f g h i j k l m n o p q r s t u v w x y z 1 2 3 4 5 6 7", "words");
	refuse("host \001 cpus 1", "byte 1");
	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	refuse(longest, "longer");
}

Test(topo, beginnings_refused)
{
	static const char *const bad[] = { "", "\n# nothing\n", "host a cpus 1\n", "spmt-topo\n",
		"spmt-topo 2\n", "spmt-topo one\n", "spmt-topo 1 1\n",
		"spmt-topo 1\nranks 0 devices 0\n", "spmt-topo 1\nnuma 0\n",
		"spmt-topo 1\ndevice 0 backend host\n" };
	struct topo *topo = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		cr_expect_eq(topo_parse(bad[i], strlen(bad[i]), "t", &topo), -EINVAL, "%s", bad[i]);
		cr_expect(strstr(status_sentence(), "t:"));
	}
	cr_expect_eq(topo_parse("spmt-topo 1\n\0", 13, "t", &topo), -EINVAL, "a NUL byte");
	cr_expect_null(topo);
}

/* One line more than may be. */
static void too_many(const char *line, int most)
{
	size_t each = strlen(line), used;
	char *text = malloc(each * (size_t)(most + 1) + 100);
	struct topo *topo = NULL;

	used = (size_t)sprintf(text, "spmt-topo 1\nhost a cpus 1\ndevice 0 backend host\n");
	for (int i = 0; i <= most; i++, used += each)
		snprintf(text + used, each + 1, "%s", line);
	cr_expect_eq(topo_parse(text, used - each, "t", &topo), 0, "%s", status_sentence());
	topo_free(topo);
	cr_expect_eq(topo_parse(text, used, "t", &topo), -E2BIG);
	cr_expect(strstr(status_sentence(), "more than"), "%s", status_sentence());
	free(text);
}

Test(topo, limits)
{
	char *huge = calloc(1, TOPO_MAX_TEXT + 1);
	struct topo *topo = NULL;

	too_many("nic a\n", TOPO_MAX_NICS);
	too_many("numa 0\n", TOPO_MAX_NUMAS);
	too_many("peers 0 to 0 link host\n", TOPO_MAX_PEERS);
	memset(huge, '\n', TOPO_MAX_TEXT + 1);
	cr_expect_eq(topo_parse(huge, TOPO_MAX_TEXT + 1, "t", &topo), -E2BIG);
	free(huge);
}

Test(topo, odd_names_are_written_so_that_they_can_be_read)
{
	struct topo_host host = { .name = "a \"b\"\n", .cpus = 1 };
	struct topo t = { .hosts = &host, .nhosts = 1 };
	char *text;

	cr_assert_eq(topo_format(&t, &text), 0);
	cr_expect_str_eq(text, "spmt-topo 1\nhost \"a ?b??\" cpus 1\n");
	mem_free(text);
}

Test(topo, files_that_are_not_there)
{
	struct topo *topo = NULL;

	cr_expect_eq(topo_read("/nonexistent.topo", &topo), -ENOENT);
	cr_expect(strstr(status_sentence(), "/nonexistent.topo"));
	cr_expect_eq(topo_read("/", &topo), -EISDIR);
	cr_expect_null(topo);
}

Test(topo, without_memory)
{
	bool fired = true;

	for (uint64_t n = 1; fired; n++) {
		struct topo *topo = NULL;
		char *text = NULL;
		int rc;

		fault_arm(1u << FAULT_ALLOC, n);
		rc = topo_parse(machine, strlen(machine), "t", &topo);
		if (!rc)
			rc = topo_format(topo, &text);
		fired = fault_fired();
		fault_disarm();
		cr_assert_eq(rc, fired ? -ENOMEM : 0);
		cr_assert(fired || n > 15);
		mem_free(text);
		topo_free(topo);
	}
}

/* ---- the machine at hand */

struct traits {
	cpu_set_t cpus;
	struct sigaction actions[NSIG];
	sigset_t mask;
	int threads, fds;
};

static int entries(const char *path)
{
	DIR *dir = opendir(path);
	int n = 0;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static void look(struct traits *t)
{
	memset(t, 0, sizeof(*t));
	cr_assert_eq(sched_getaffinity(0, sizeof(t->cpus), &t->cpus), 0);
	sigprocmask(SIG_SETMASK, NULL, &t->mask);
	for (int s = 1; s < NSIG; s++)
		sigaction(s, NULL, &t->actions[s]);
	t->threads = entries("/proc/self/task");
	t->fds = entries("/proc/self/fd");
}

static void expect_valid(const struct topo *t)
{
	cr_expect_eq(t->nhosts, 1);
	cr_expect_str_not_empty(t->hosts[0].name);
	cr_expect_geq(t->hosts[0].cpus, 1);
	cr_expect_geq(t->ndevices, 1, "the host backend at least");
	round_trip(t);
}

Test(topo, at_hand_without_side_effects)
{
	const struct topo *t = NULL, *again = NULL;
	struct traits before, after;

	look(&before);
	cr_assert_eq(topo_get(&t), 0, "%s", status_sentence());
	look(&after);
	cr_expect(CPU_EQUAL(&before.cpus, &after.cpus));
	for (int s = 1; s < NSIG; s++)
		cr_expect(before.actions[s].sa_handler == after.actions[s].sa_handler, "signal %d",
			s);
	cr_expect_arr_eq(&before.mask, &after.mask, sizeof(sigset_t));
	cr_expect_eq(before.threads, after.threads);
	cr_expect_eq(before.fds, after.fds);
	expect_valid(t);
	cr_expect_eq(topo_get(&again), 0);
	cr_expect_eq(t, again, "loaded once");
}

Test(topo, virtual_devices_are_one_rule)
{
	const struct topo *t = NULL;
	int first = 0, n;

	setenv("SPMT_HOST_DEVICES", "144", 1);
	cr_assert_eq(topo_get(&t), 0, "%s", status_sentence());
	while (strcmp(t->devices[first].backend, "host"))
		first++;
	n = t->ndevices - first;
	cr_expect_eq(n, 144);
	cr_expect_eq(t->peers[t->npeers - 1].from[0], first);
	cr_expect_eq(t->peers[t->npeers - 1].from[1], first + 143);
	cr_expect_eq(topo_peers(t, first, first + 143)->link, TOPO_LINK_HOST);
	cr_expect_str_empty(topo_peers(t, first + 77, first)->reason);
	round_trip(t);
}

/* ---- sysfs */

static char root[] = "/tmp/spmt-topo-XXXXXX";

static void put_file(const char *name, const char *text)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", root, name);
	for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')); *at++ = '/') {
		*at = '\0';
		mkdir(path, 0700);
	}
	f = fopen(path, "w");
	cr_assert(f, "%s", path);
	fputs(text, f);
	fclose(f);
}

static void put_link(const char *name, const char *target)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", root, name);
	cr_assert_eq(symlink(target, path), 0, "%s", path);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st, (void)type, (void)at;
	return remove(path);
}

static void make_sys(void)
{
	cr_assert(mkdtemp(root));
	put_file("devices/system/cpu/online", "0-6,9\n");
	put_file("devices/system/node/online", "0,2-3\n");
	put_file("devices/system/node/node0/cpulist", "0-3\n");
	put_file("devices/system/node/node0/meminfo",
		"Node 0 MemTotal:       1024 kB\nNode 0 MemFree: 1 kB\n");
	put_file("devices/system/node/node2/cpulist", "4-6,9\n");
	put_file("devices/system/node/node3/cpulist", "\n");
	put_file("bus/pci/devices/0000:0c:00.0/numa_node", "2\n");
	put_file("bus/pci/devices/0000:0d:00.0/numa_node", "-1\n");
	put_file("pci/0000:0e:00.0/numa_node", "3\n");
	put_file("pci/virtio0/numa_node", "0\n");
	put_file("class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n");
	put_link("class/infiniband/mlx5_0/device", "../../../pci/0000:0e:00.0");
	put_file("class/net/ib0/speed", "400000\n");
	put_link("class/net/ib0/device", "../../../pci/0000:0e:00.0");
	put_file("class/net/eth1/speed", "25000\n");
	put_link("class/net/eth1/device", "../../../bus/pci/devices/0000:0d:00.0");
	put_file("class/net/lo/speed", "\n");
	put_file("class/net/veth/speed", "10000\n");
	put_link("class/net/veth/device", "../../../pci/virtio0");
	put_file("pci/0000:0f:00.0/numa_node", "0\n");
	put_file("pci/0000:0f:00.0/virtio1/status", "\n");
	put_file("class/net/eth9/speed", "-1\n");
	put_link("class/net/eth9/device", "../../../pci/0000:0f:00.0/virtio1");
}

Test(topo, from_sysfs)
{
	struct topo_device devices[] = { { .pci = "0000:0c:00.0", .numa = TOPO_NO_NUMA },
		{ .pci = "0000:0d:00.0", .numa = TOPO_NO_NUMA },
		{ .pci = "0000:0c:00.0", .numa = 1 }, { .numa = TOPO_NO_NUMA } };
	struct topo_host host = { .name = "a" };
	struct topo t = { .hosts = &host, .nhosts = 1, .devices = devices, .ndevices = 4 };

	make_sys();
	cr_assert_eq(topo_load_sys(root, &t), 0, "%s", status_sentence());
	nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	cr_expect_eq(host.cpus, 8);
	cr_expect_eq(t.nnumas, 3);
	cr_expect(t.numas[0].node == 0 && t.numas[0].cpus == 4 && t.numas[0].memory == 1 << 20);
	cr_expect(t.numas[1].node == 2 && t.numas[1].cpus == 4 && t.numas[1].memory == 0);
	cr_expect(t.numas[2].node == 3 && t.numas[2].cpus == 0);
	cr_expect(devices[0].numa == 2 && devices[1].numa == TOPO_NO_NUMA);
	cr_expect(devices[2].numa == 1 && devices[3].numa == TOPO_NO_NUMA);
	cr_assert_eq(t.nnics, 3, "an RDMA device hides its interface; lo and veth are no NICs");
	cr_expect_str_eq(t.nics[0].name, "mlx5_0");
	cr_expect(t.nics[0].rdma && t.nics[0].gbits == 400 && t.nics[0].numa == 3);
	cr_expect_str_eq(t.nics[1].name, "eth1");
	cr_expect(!t.nics[1].rdma && t.nics[1].gbits == 25 && t.nics[1].numa == TOPO_NO_NUMA);
	cr_expect_str_eq(t.nics[1].pci, "0000:0d:00.0");
	cr_expect(t.nics[2].numa == 0 && t.nics[2].gbits == 0);
	cr_expect_str_eq(t.nics[2].pci, "0000:0f:00.0", "what virtio hangs on");
	mem_free(t.numas);
	mem_free(t.nics);
}

Test(topo, from_a_sysfs_that_is_empty)
{
	struct topo_host host = { .name = "a" };
	struct topo t = { .hosts = &host, .nhosts = 1 };

	cr_expect_eq(topo_load_sys("/nonexistent", &t), 0);
	cr_expect(host.cpus == 0 && t.nnumas == 0 && t.nnics == 0);
}

#if SPMT_HAVE_HWLOC
Test(topo, hwloc_and_sysfs_agree)
{
	struct topo_host hosts[2] = { { .name = "a" }, { .name = "b" } };
	struct topo h = { .hosts = &hosts[0], .nhosts = 1 },
		    s = { .hosts = &hosts[1], .nhosts = 1 };

	cr_assert_eq(topo_load_hwloc(&h), 0, "%s", status_sentence());
	cr_assert_eq(topo_load_sys("/sys", &s), 0, "%s", status_sentence());
	cr_expect_geq(hosts[0].cpus, 1);
	if (!s.nnumas || !hosts[1].cpus)
		cr_skip_test("no sysfs here to compare with");
	cr_expect_leq(
		hosts[0].cpus, hosts[1].cpus, "hwloc leaves out what a container may not use");
	cr_expect(h.nnumas >= 1 && h.nnumas <= s.nnumas, "%d of %d", h.nnumas, s.nnumas);
	for (int i = 0; i < h.nnumas; i++) {
		int k = 0;

		while (k < s.nnumas && s.numas[k].node != h.numas[i].node)
			k++;
		cr_assert_lt(
			k, s.nnumas, "hwloc has a node %d, sysfs has not", (int)h.numas[i].node);
		cr_expect_leq(h.numas[i].cpus, s.numas[k].cpus);
		cr_expect_gt(h.numas[i].memory, 0);
	}
	cr_expect_eq(h.nnics, s.nnics);
	mem_free(h.numas);
	mem_free(h.nics);
	mem_free(s.numas);
	mem_free(s.nics);
}
#endif
