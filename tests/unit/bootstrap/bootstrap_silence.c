/* SPDX-License-Identifier: MIT */
/* A process of another node that is stopped, whose kernel answers, and a node that has gone, whose kernel does not. */
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "party.h"
#include "tests/lib/clocks.h"

#define NRANKS 512 /* what is told of them fills all buffers on the way to who does not read */
#define LAST (NRANKS - 1)

struct other {
	pid_t pid;
	int to, from;
};

static int open_wide(struct party *p, const struct uid *uid, bool only_tcp)
{
	const struct bootstrap_config config = { .uid = uid,
		.nranks = NRANKS,
		.rank = -1,
		.blob_size = BOOTSTRAP_BLOB,
		.broken = broken,
		.ctx = &p->heard,
		.only_tcp = only_tcp };

	memset(p, 0, sizeof(*p));
	return bootstrap_open(&config, NULL, &p->b);
}

static int add_wide(struct party *p, int rank)
{
	const struct patience patience = { process_now(), 20000 };
	const char blob[BOOTSTRAP_BLOB] = { (char)rank };

	return bootstrap_add(p->b, rank, blob, &patience);
}

/* Once there is a hub: says how its last rank was taken, how the world became complete, and, once it may, whether it still is. */
static void other_main(const struct uid *uid, int from, int to)
{
	struct party p;
	char go;
	int rc;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (read(from, &go, 1) != 1)
		_exit(1);
	rc = open_wide(&p, uid, true);
	rc = rc ? rc : add_wide(&p, LAST);
	if (rc)
		fprintf(stderr, "%d: %s\n", rc, status_sentence());
	if (write(to, &rc, sizeof(rc)) < 0)
		_exit(1);
	rc = wait_for(&p, 60000);
	if (write(to, &rc, sizeof(rc)) < 0 || read(from, &go, 1) != 1)
		_exit(1);
	rc = atomic_load(&p.heard.code);
	bootstrap_close(p.b);
	if (write(to, &rc, sizeof(rc)) < 0)
		_exit(1);
	_exit(0);
}

static int says(const struct other *o)
{
	int rc = -1;

	return read(o->from, &rc, sizeof(rc)) == sizeof(rc) ? rc : -EPIPE;
}

/* The hub is there; the other has the last rank. */
static void begin(struct party *hub, struct other *o)
{
	int down[2], up[2];
	struct uid uid;

	setenv("SPMT_SOCKET_IFNAME", "lo", 1);
	uid_make(&uid);
	cr_assert_eq(pipe2(down, O_CLOEXEC) | pipe2(up, O_CLOEXEC), 0);
	/* before another thread may be in the allocator, whose locks the child would find taken */
	o->pid = fork();
	if (!o->pid)
		other_main(&uid, down[0], up[1]);
	cr_assert_gt(o->pid, 0);
	o->to = down[1];
	o->from = up[0];
	cr_assert_eq(open_wide(hub, &uid, false), 0, "%s", status_sentence());
	cr_assert_eq(write(o->to, "", 1), 1);
	cr_assert_eq(add_wide(hub, 0), 0);
	cr_assert_eq(says(o), 0);
}

static void all_come(struct party *hub)
{
	for (int r = 1; r < LAST; r++)
		cr_assert_eq(add_wide(hub, r), 0, "%s", status_sentence());
	cr_assert_eq(wait_for(hub, 60000), 0, "%s", status_sentence());
}

static void stop(const struct other *o)
{
	kill(o->pid, SIGSTOP);
	cr_assert_eq(waitpid(o->pid, NULL, WUNTRACED), o->pid);
}

static void over(struct party *hub, const struct other *o)
{
	bootstrap_close(hub->b);
	kill(o->pid, SIGKILL);
	waitpid(o->pid, NULL, 0);
}

/* More is sent to it than fits, for several times what another node may be silent. */
Test(bootstrap_silence, a_stop_behind_full_buffers_is_none)
{
	struct party hub;
	struct other o;

	setenv("SPMT_SOCKET_LOST_MS", "200", 1);
	begin(&hub, &o);
	stop(&o);
	all_come(&hub);
	usleep(1700000);
	cr_expect_eq(atomic_load(&hub.heard.times), 0, "%s", hub.heard.sentence);
	kill(o.pid, SIGCONT);
	cr_expect_eq(says(&o), 0);
	usleep(300000);
	cr_expect_eq(write(o.to, "", 1), 1);
	cr_expect_eq(says(&o), 0);
	cr_expect_eq(atomic_load(&hub.heard.times), 0, "%s", hub.heard.sentence);
	over(&hub, &o);
}

/* ---- a cut ------------------------------------------------------------------------------------- */

static bool loopback(bool up)
{
	struct ifreq r = { .ifr_name = "lo", .ifr_flags = (short)(up ? IFF_UP | IFF_RUNNING : 0) };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool done = fd >= 0 && !ioctl(fd, SIOCSIFFLAGS, &r);

	if (fd >= 0)
		close(fd);
	return done;
}

static void own_network(void)
{
	if ((unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET)) || !loopback(true))
		cr_skip_test("no network namespaces here");
}

static void expect_told_of(struct party *hub, const char *sentence, int64_t within)
{
	int64_t begin = calm_ns();

	while (!atomic_load(&hub->heard.times) && calm_ns() - begin < 10000 * MS)
		usleep(1000);
	cr_expect_lt(calm_ns() - begin, within * MS);
	cr_expect_str_eq(hub->heard.sentence, sentence);
}

Test(bootstrap_silence, a_cut_is_found)
{
	struct party hub;
	struct other o;

	own_network();
	begin(&hub, &o);
	all_come(&hub);
	cr_assert_eq(says(&o), 0);
	cr_assert(loopback(false));
	expect_told_of(&hub, "1 of 512 ranks died: 511", 1500);
	usleep(300000);
	cr_expect_eq(write(o.to, "", 1), 1);
	cr_expect_eq(says(&o), SPMT_ERR_PEER_DEAD);
	over(&hub, &o);
}

/* Nothing is sent that could stay without an answer, but what looks whether there is room by now. */
Test(bootstrap_silence, a_cut_behind_full_buffers_is_found)
{
	struct party hub;
	struct other o;

	own_network();
	begin(&hub, &o);
	stop(&o);
	all_come(&hub);
	usleep(500000);
	cr_expect_eq(atomic_load(&hub.heard.times), 0, "%s", hub.heard.sentence);
	cr_assert(loopback(false));
	expect_told_of(&hub, "1 of 512 ranks died: 511", 4000);
	over(&hub, &o);
}
