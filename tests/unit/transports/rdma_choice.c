/* SPDX-License-Identifier: MIT */
/* Which RDMA device a rank takes, by the machine's buses: recorded ones (tests/fixtures, *.sysfs), made into a tree as /sys has it. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/base.h"
#include "src/base/status.h"
#include "transports/verbs/choose.h"

enum { NICS_HERE = 16 };

static char sys[] = "/tmp/spmt-sys.XXXXXX";
static char nics[NICS_HERE][64];
static int nnics;

static void make_folder(const char *folder)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s", folder);
	for (char *at = path + strlen(sys) + 1; (at = strchr(at, '/')); *at++ = '/') {
		*at = '\0';
		mkdir(path, 0777);
	}
	mkdir(path, 0777);
}

static void make_file(const char *folder, const char *name, const char *text)
{
	char path[PATH_MAX];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	f = fopen(path, "we");
	cr_assert(f && fputs(text, f) >= 0 && !fclose(f));
}

static void make_link(const char *folder, const char *name, const char *to)
{
	char path[PATH_MAX];

	make_folder(folder);
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	cr_assert_eq(symlink(to, path), 0);
}

static void make_device(const char *line)
{
	char path[200], node[8], vendor[16], class[16], nic[64], folder[512], links[512];
	int n = sscanf(line, "%199s %7s %15s %15s %63s", path, node, vendor, class, nic);

	cr_assert_geq(n, 4, "%s", line);
	snprintf(folder, sizeof(folder), "%s/devices/%s", sys, path);
	make_folder(folder);
	make_file(folder, "numa_node", node);
	make_file(folder, "vendor", vendor);
	make_file(folder, "class", class);
	snprintf(links, sizeof(links), "%s/bus/pci/devices", sys);
	make_link(links, strrchr(path, '/') + 1, folder);
	if (n < 5)
		return;
	snprintf(links, sizeof(links), "%s/class/infiniband/%s", sys, nic);
	make_link(links, "device", folder);
	snprintf(nics[nnics++], sizeof(nics[0]), "%s", nic);
}

static void load(const char *name)
{
	const char *source = getenv("SPMT_SOURCE");
	char path[PATH_MAX], line[512];
	FILE *f;

	cr_assert(mkdtemp(sys));
	snprintf(path, sizeof(path), "%s/tests/fixtures/%s.sysfs", source ? source : ".", name);
	f = fopen(path, "re");
	cr_assert(f, "%s", path);
	while (fgets(line, sizeof(line), f))
		if (line[0] != '#')
			make_device(line);
	fclose(f);
}

static int drop(const char *path, const struct stat *stat, int kind, struct FTW *at)
{
	(void)stat;
	(void)kind;
	(void)at;
	return remove(path);
}

static void fini(void)
{
	nftw(sys, drop, 8, FTW_DEPTH | FTW_PHYS);
}

/* As verbs_choose does it. */
static const char *nic_of(const char *pci, int dev)
{
	int nearest = INT_MAX, near[NICS_HERE], n = 0;

	for (int i = 0; i < nnics; i++) {
		int steps = verbs_steps(sys, pci, nics[i]);

		if (steps < nearest)
			n = 0;
		if (steps <= nearest)
			near[n++] = i;
		nearest = steps < nearest ? steps : nearest;
	}
	return nics[near[verbs_turn(sys, pci, dev) % n]];
}

Test(rdma_choice, eight_gpus_and_eight_nics, .fini = fini)
{
	static const char *const gpus[] = { "0000:19:00.0", "0000:3b:00.0", "0000:4c:00.0",
		"0000:5d:00.0", "0000:9b:00.0", "0000:bb:00.0", "0000:cb:00.0", "0000:db:00.0" };

	load("h200-8");
	cr_assert_eq(nnics, 9);
	for (int i = 0; i < 8; i++) {
		char wanted[16];

		snprintf(wanted, sizeof(wanted), "mlx5_%d", i);
		cr_expect_str_eq(nic_of(gpus[i], i), wanted);
		cr_expect_str_eq(nic_of(gpus[i], 0), wanted, "by its place, not by its number");
	}
	cr_expect_lt(verbs_steps(sys, gpus[0], "mlx5_0"), verbs_steps(sys, gpus[0], "mlx5_1"));
	cr_expect_lt(verbs_steps(sys, gpus[0], "mlx5_1"), verbs_steps(sys, gpus[0], "mlx5_4"));
}

/* Those of its NUMA node, however long the paths, and each by as many; also where each process sees one GPU, which is its first. */
Test(rdma_choice, four_nics_shared_out, .fini = fini)
{
	load("bridges-8");
	cr_assert_eq(nnics, 4);
	for (int i = 0; i < 8; i++) {
		char pci[16], wanted[16];

		snprintf(pci, sizeof(pci), "0000:%x:00.0", 0x11 + 0x10 * i);
		snprintf(wanted, sizeof(wanted), "mlx5_%d", 2 * (i / 4) + i % 2);
		cr_expect_str_eq(nic_of(pci, 0), wanted, "GPU %d: %s", i, nic_of(pci, 0));
	}
}

/* Several devices each: all take part as often, and as often as the first. */
Test(rdma_choice, several_each)
{
	for (int near = 1; near <= 8; near++)
		for (int each = 1; each <= 4 && each <= near; each++) {
			int taken[8] = { 0 }, first[8] = { 0 };

			for (int turn = 0; turn < near; turn++) {
				int at = verbs_first(turn, each, near);

				cr_assert(at >= 0 && at < near);
				first[at]++;
				for (int i = 0; i < each; i++)
					taken[(at + i) % near]++;
			}
			for (int i = 0; i < near; i++) {
				cr_expect_eq(first[i], 1, "%d of %d: %d", each, near, i);
				cr_expect_eq(taken[i], each, "%d of %d: %d", each, near, i);
			}
		}
	for (int turn = 0; turn < 2; turn++) /* those of one do not meet those of the other */
		cr_expect_eq(verbs_first(turn, 2, 4), 2 * turn);
	cr_expect_eq(verbs_first(13, 1, 4), 1);
}

Test(rdma_choice, what_is_on_no_bus, .fini = fini)
{
	load("bridges-8");
	cr_expect_eq(verbs_steps(sys, "", "mlx5_0"), INT16_MAX);
	cr_expect_eq(verbs_steps(sys, "0000:ff:00.0", "mlx5_0"), INT16_MAX);
	cr_expect_eq(verbs_steps(sys, "0000:11:00.0", "rxe0"), INT16_MAX);
	cr_expect_str_eq(nic_of("", 3), "mlx5_3");
	cr_expect_str_eq(nic_of("0000:ff:00.0", 5), "mlx5_1");
}

Test(rdma_choice, gids)
{
	const union verbs_gid none = { .raw = { 0 } }, local = { .raw = { 0xfe, 0x80, [15] = 1 } },
			      wide = { .raw = { 0x20, 0x01, [15] = 1 } },
			      v4 = { .raw = { [10] = 0xff, 0xff, 10, 0, 0, 1 } };
	const union verbs_gid *const rising[] = { &local, &wide, &v4 };

	cr_expect_eq(verbs_gid_rank(&none, true), 0);
	for (int i = 0; i < 3; i++) {
		cr_expect_gt(verbs_gid_rank(rising[i], false), 0);
		cr_expect(!i ||
			verbs_gid_rank(rising[i], true) > verbs_gid_rank(rising[i - 1], true));
		cr_expect_gt(verbs_gid_rank(&local, true), verbs_gid_rank(rising[i], false),
			"RoCE v2 comes first");
	}
}

static bool listed(const char *list, const char *name, int *port)
{
	return verbs_listed(&list, name, port);
}

Test(rdma_choice, wishes)
{
	static const char *const no_ports[] = { "rxe0:", "rxe0:0", "rxe0:x", "rxe0:2x", "rxe0: 1",
		"rxe0:-1", "rxe0:256", "rxe0:4294967298", "rxe0:1:2", "rxe0:,rxe0" };
	const char *rest = NULL;
	int port;

	for (size_t i = 0; i < sizeof(no_ports) / sizeof(no_ports[0]); i++)
		cr_expect(listed(no_ports[i], "rxe0", &port) && port == -1, "%s: %d", no_ports[i],
			port);
	cr_expect(listed("rxe0:255,rxe1", "rxe0", &port) && port == 255);

	cr_expect(listed("rxe0,mlx5_1:2", "mlx5_1", &port) && port == 2);
	cr_expect(listed("rxe0,mlx5_1:2", "rxe0", &port) && !port);
	cr_expect(!listed("mlx5_10", "mlx5_1", &port));
	cr_expect(!listed("mlx5_1", "mlx5_10", &port));
	cr_expect(verbs_listed(&rest, "mlx5_0", &port) && !port);
	cr_expect(!verbs_listed(&rest, "mlx5_0", &port), "once");
}

/* ---- a machine of three devices with three ports each: the first are down, the last device is InfiniBand's */

static struct verbs_device *made[4];
static int open_now;

static struct verbs_device **made_list(int *n)
{
	*n = 3;
	for (int i = 0; i < *n; i++)
		made[i] = (struct verbs_device *)&made[i];
	return made;
}

static void made_list_free(struct verbs_device **list)
{
	cr_expect_eq(list, made);
}

static const char *made_name(struct verbs_device *device)
{
	static const char *const names[] = { "d0", "d1", "ib0" };

	return names[(struct verbs_device **)device - made];
}

static struct verbs_ctx *made_open(struct verbs_device *device)
{
	open_now++;
	return (struct verbs_ctx *)device;
}

static int made_close(struct verbs_ctx *ctx)
{
	(void)ctx;
	open_now--;
	return 0;
}

static int made_query(struct verbs_ctx *ctx, struct verbs_device_attr *attr)
{
	(void)ctx;
	attr->phys_port_cnt = 3;
	return 0;
}

static int made_port(struct verbs_ctx *ctx, uint8_t port, struct verbs_port_old *old)
{
	struct verbs_port *attr = (struct verbs_port *)old;

	attr->state = port == 1 ? 1 : VERBS_PORT_ACTIVE;
	attr->gid_tbl_len = 1;
	attr->link_layer = ctx == (struct verbs_ctx *)&made[2] ? 1 : VERBS_LINK_LAYER_ETHERNET;
	return 0;
}

static int made_gid(struct verbs_ctx *ctx, uint8_t port, int index, union verbs_gid *gid)
{
	(void)ctx;
	memset(gid, 0, sizeof(*gid));
	gid->raw[15] = (unsigned char)(1 + port + index);
	return 0;
}

/* The ports that are taken, as "d0:2 d1:2", or the sentence. */
static void chosen(const char *wish, int most, char *text, size_t size)
{
	static const struct verbs_api api = { .get_device_list = made_list,
		.free_device_list = made_list_free,
		.device_name = made_name,
		.open_device = made_open,
		.close_device = made_close,
		.query_device = made_query,
		.query_port = made_port,
		.query_gid = made_gid };
	struct verbs_place places[8];
	size_t used = 0;
	int n = 0;

	if (wish)
		setenv("SPMT_RDMA_DEVICE", wish, 1);
	text[0] = '\0';
	if (verbs_choose(&api, 0, "", most, places, &n))
		snprintf(text, size, "%s", status_sentence());
	cr_expect_eq(open_now, n);
	for (int i = 0; i < n; i++)
		used += (size_t)snprintf(text + used, size - used, "%s%s:%d", i ? " " : "",
			places[i].name, places[i].port);
}

static const struct {
	const char *wish;
	int most;
	const char *is;
} wished[] = { { NULL, 4, "d0:2 d1:2" }, { "d1", 4, "d1:2" }, { "d0:2,d0:3", 4, "d0:2 d0:3" },
	{ "d0:3,d1:3,d0:2", 4, "d0:3 d0:2 d1:3" }, { "d0:2,d0:3", 1, "d0:2" },
	{ "d0:1,d0:3", 4, "d0:3" }, { "d0,d0:2,d0:3", 4, "d0:2 d0:3" },
	{ "ib0:3,ib0:2", 4, "ib0:3 ib0:2" }, { "ib0:3,d0:2", 4, "d0:2" },
	{ "d0:1", 4, "d0 has no active port of the number asked for (SPMT_RDMA_DEVICE)" },
	{ "d7", 4, "SPMT_RDMA_DEVICE=d7 names none of 3 devices, the first is d0" } };

ParameterizedTestParameters(rdma_choice, ports)
{
	static int rows[ARRAY_SIZE(wished)];

	for (size_t i = 0; i < ARRAY_SIZE(wished); i++)
		rows[i] = (int)i;
	return cr_make_param_array(int, rows, ARRAY_SIZE(wished));
}

/* Each port that is named is one of the rank's, as with several devices. A process reads its environment once. */
ParameterizedTest(int *row, rdma_choice, ports)
{
	char text[256];

	chosen(wished[*row].wish, wished[*row].most, text, sizeof(text));
	cr_expect_str_eq(text, wished[*row].is);
}

/* What /sys says is near a device, or that it does not. */
static int near_cpus(const char *list, cpu_set_t *cpus)
{
	char folder[PATH_MAX];

	snprintf(folder, sizeof(folder), "%s/class/infiniband/mlx5_0/device", sys);
	make_file(folder, "local_cpulist", list);
	return verbs_cpus(sys, "mlx5_0", cpus) ? CPU_COUNT(cpus) : -1;
}

Test(rdma_choice, cpus_near_a_device, .fini = fini)
{
	cpu_set_t cpus;

	load("h200-8");
	cr_expect_not(verbs_cpus(sys, "mlx5_0", &cpus), "no such file");
	cr_expect_not(verbs_cpus(sys, "rxe0", &cpus), "no such device");
	cr_assert_eq(near_cpus("0-3,8,10-11\n", &cpus), 7);
	for (size_t cpu = 0; cpu < 16; cpu++)
		cr_expect_eq(
			CPU_ISSET(cpu, &cpus) != 0, cpu < 4 || cpu == 8 || cpu == 10 || cpu == 11);
	cr_expect_eq(near_cpus("5\n", &cpus), 1);
	cr_expect(CPU_ISSET(5, &cpus));
	cr_expect_eq(near_cpus("1020-4000\n", &cpus), 4, "those that a set has room for");
	cr_expect_eq(near_cpus("\n", &cpus), -1);
	cr_expect_eq(near_cpus("", &cpus), -1);
	cr_expect_eq(near_cpus("0-3;5\n", &cpus), -1);
	cr_expect_eq(near_cpus("all\n", &cpus), -1);
}
