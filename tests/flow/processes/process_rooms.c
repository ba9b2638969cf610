/* SPDX-License-Identifier: MIT */
/* Processes in narrow rooms: few descriptors, no /tmp, no /dev/shm, no home, no network; other address spaces; and strangers,
   who get neither in nor at the memory. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/fault.h"
#include "src/base/process.h"
#include "tests/lib/every_call.h"
#include "tests/lib/processes.h"

static int everything(spmt_comm *comm, void *arg)
{
	struct processes *p = arg;
	struct every_call b = {
		.layout = p->layout, .uid = &p->uid[processes_cycle()], .less = true
	};

	TRY(every_call_places(comm, &b));
	return every_call_right(comm, &b);
}

/* ---- what is scarce ---------------------------------------------------------------------------------------------------- */

#define DESCRIPTORS "a driver opens as many descriptors as it likes"

Test(process_rooms, few_descriptors)
{
	struct processes p = { .layout = "0|1,2,3|4,5,6,7", .files = 64 };

	NEEDS_HOST(DESCRIPTORS);
	RANKS_OK(processes_world(&p, everything, &p));
}

/* Too few of them: every rank ends with an error, one of them with the reason; none waits beyond its deadline. */
static int too_few(int rank, void *arg)
{
	struct processes *p = arg;
	struct spmt_attr attr = ranks_attr(rank, p->nranks, &p->uid[0]);
	_Atomic int *named = p->shared;
	spmt_comm *comm = NULL;

	attr.timeout_ms = 2500; /* in which all have come to those that wait for them */
	REQUIRE(spmt_init(&attr, &comm) < 0);
	REQUIRE(!comm);
	if (strstr(spmt_last_error(), "Too many open files") ||
		strstr(spmt_last_error(), "ulimit -n"))
		atomic_fetch_add(named, 1);
	return 0;
}

Test(process_rooms, too_few_descriptors)
{
	NEEDS_HOST(DESCRIPTORS);
	for (int files = 8; files <= 12; files += 2) {
		struct processes p = { .layout = "0,1|2,3", .files = files };

		p.shared = processes_shared(sizeof(int));
		RANKS_OK(processes_run(&p, too_few, &p));
		cr_expect_gt(atomic_load((_Atomic int *)p.shared), 0, "%d descriptors", files);
	}
}

/* A leader that has no descriptor left for the last to come, or for their heaps, says so, long before they are missed. */
Test(process_rooms, too_few_for_all)
{
	NEEDS_HOST(DESCRIPTORS);
	for (int files = 20; files <= 35; files += 3) {
		struct processes p = { .layout = "0|1|2|3|4|5|6|7", .files = files };
		int64_t begin = calm_ns();

		p.shared = processes_shared(sizeof(int));
		RANKS_OK(processes_run(&p, too_few, &p));
		cr_expect_gt(atomic_load((_Atomic int *)p.shared), 0, "%d descriptors", files);
		cr_expect_lt(calm_ns() - begin, 2400000000, "%d descriptors", files);
	}
}

static int files_too_large(int rank, void *arg)
{
	struct processes *p = arg;
	struct spmt_attr attr = ranks_attr(rank, p->nranks, &p->uid[0]);
	struct rlimit limit = { 4 << 20, 4 << 20 }; /* control blocks fit */
	spmt_comm *comm = NULL;

	setrlimit(RLIMIT_FSIZE, &limit);
	REQUIRE_CODE(spmt_init(&attr, &comm), -EFBIG);
	REQUIRE_SAYS("ulimit -f");
	REQUIRE_SAYS("(a lower attr.heap_size may fit)");
	return 0;
}

Test(process_rooms, small_files)
{
	struct processes p = { .layout = "0,1|2,3" };

	NEEDS_HOST("its heap is a file");
	for (int vmm = 0; vmm < 2; vmm++) {
		setenv("SPMT_HEAP_MODE", vmm ? "vmm" : "static", 1);
		RANKS_OK(processes_run(&p, files_too_large, &p));
	}
}

/* Of one process alone. It keeps its failure for a moment, in which the other comes, as long as the machine does not stand still. */
static int one_without_files(int rank, void *arg)
{
	struct processes *p = arg;
	struct spmt_attr attr = ranks_attr(rank, p->nranks, &p->uid[0]);
	struct rlimit limit = { 4 << 10, 4 << 10 }; /* nothing fits */
	_Atomic int *heard = p->shared;
	spmt_comm *comm = NULL;
	int rc;

	attr.timeout_ms = 1500;
	if (processes_of(p->layout, rank) == 0)
		setrlimit(RLIMIT_FSIZE, &limit);
	rc = spmt_init(&attr, &comm);
	REQUIRE(rc < 0 && !comm);
	if (rc != -EFBIG)
		return 0;
	REQUIRE_SAYS("ulimit -f");
	/* else it has led, and it was a heap that could not be had */
	if (processes_of(p->layout, rank) == 1 && strstr(spmt_last_error(), "memory to share"))
		atomic_fetch_add(heard, 1);
	return 0;
}

Test(process_rooms, small_files_of_one)
{
	struct processes p = { .layout = "0,1|2,3" };
	int heard = 0;

	NEEDS_HOST("its heap is a file");
	p.shared = processes_shared(sizeof(int));
	for (int i = 0; i < 5 || (!heard && i < 20); i++) {
		RANKS_OK(processes_run(&p, one_without_files, &p));
		heard = atomic_load((_Atomic int *)p.shared);
	}
	cr_expect_gt(heard, 0);
}

static int addresses_too_few(int rank, void *arg)
{
	struct processes *p = arg;
	struct spmt_attr attr = ranks_attr(rank, 1, &p->uid[0]);
	struct rlimit limit = { 1 << 30, 1 << 30 };
	spmt_comm *comm = NULL;

	attr.heap_size = 0;
	setrlimit(RLIMIT_AS, &limit);
	REQUIRE(spmt_init(&attr, &comm) < 0);
	REQUIRE_SAYS("(a lower SPMT_HEAP_SIZE may fit)");
	attr.heap_size = 1 << 30;
	REQUIRE(spmt_init(&attr, &comm) < 0);
	REQUIRE_SAYS("(a lower attr.heap_size may fit)");
	attr.heap_size = 1 << 20;
	REQUIRE_OK(spmt_init(&attr, &comm));
	return spmt_finalize(comm);
}

Test(process_rooms, few_addresses)
{
	struct processes p = { .layout = "0" };

	NEEDS_HOST("its heap is of this process's addresses");
	if (SANITIZED)
		cr_skip_test("sanitizers need more addresses than that");
	setenv("SPMT_HEAP_SIZE", "1G", 1);
	for (int vmm = 0; vmm < 2; vmm++) {
		setenv("SPMT_HEAP_MODE", vmm ? "vmm" : "static", 1);
		RANKS_OK(processes_run(&p, addresses_too_few, &p));
	}
}

/* ---- no standard streams ------------------------------------------------------------------------------------------------- */

/* What a program prints would be written into whatever the library had there. */
static int streams_are_closed(void)
{
	struct stat s;

	for (int fd = 0; fd < 3; fd++) {
		int rc = fstat(fd, &s);

		REQUIRE(rc < 0 && errno == EBADF);
	}
	return 0;
}

static int registered(spmt_comm *comm, void *arg)
{
	char own[64];
	spmt_mem *mem;

	TRY(everything(comm, arg));
	REQUIRE_OK(spmt_register(comm, own, sizeof(own), &mem));
	TRY(streams_are_closed());
	return spmt_deregister(comm, mem);
}

Test(process_rooms, no_standard_streams)
{
	const char *const layouts[] = { "0,1", "0|1", "0|1,2,3|4,5,6,7" };

	NEEDS_HOST(DESCRIPTORS);
	for (size_t i = 0; i < sizeof(layouts) / sizeof(*layouts); i++) {
		struct processes p = { .layout = layouts[i], .bare = true };

		RANKS_OK(processes_world(&p, registered, &p));
	}
}

static int closed_here(spmt_comm *comm, void *arg)
{
	(void)arg;
	TRY(streams_are_closed());
	return spmt_barrier(comm);
}

static int refused_one_by_one(int rank, void *arg)
{
	struct spmt_attr attr = ranks_attr(0, 1, arg);
	uint64_t n = 0;
	bool fired;

	(void)rank;
	attr.uid = NULL;
	attr.timeout_ms = 1000;
	do {
		fault_arm(1u << FAULT_FD, ++n);
		REQUIRE(spmt_run(2, &attr, closed_here, NULL) != RANKS_FAILED);
		fired = fault_fired();
		fault_disarm();
		TRY(streams_are_closed());
	} while (fired);
	REQUIRE(n > 2);
	REQUIRE_OK(spmt_run(2, &attr, closed_here, NULL));
	return streams_are_closed();
}

Test(process_rooms, no_standard_streams_and_too_few_others)
{
	struct processes p = { .layout = "0", .bare = true };

	NEEDS_HOST(DESCRIPTORS);
	RANKS_OK(processes_run(&p, refused_one_by_one, &p.uid[0]));
}

/* The nth that each process asks for. */
struct refusal {
	struct processes p;
	uint64_t n;
};

static int refused_once(int rank, void *arg)
{
	struct refusal *r = arg;
	struct spmt_attr attr = ranks_attr(rank, r->p.nranks, &r->p.uid[0]);
	_Atomic int *fired = r->p.shared;
	spmt_comm *comm = NULL;

	attr.timeout_ms = 300;
	fault_arm(1u << FAULT_FD, r->n);
	spmt_init(&attr, &comm);
	if (fault_fired())
		atomic_fetch_add(fired, 1);
	fault_disarm();
	TRY(streams_are_closed());
	if (comm)
		spmt_finalize(comm);
	return streams_are_closed();
}

Test(process_rooms, no_standard_streams_and_too_few_between_processes)
{
	struct refusal r = { .p = { .layout = "0|1", .bare = true } };
	int before;

	NEEDS_HOST(DESCRIPTORS);
	r.p.shared = processes_shared(sizeof(int));
	do {
		before = atomic_load((_Atomic int *)r.p.shared);
		r.n++;
		RANKS_OK(processes_run(&r.p, refused_once, &r));
	} while (atomic_load((_Atomic int *)r.p.shared) > before);
	cr_assert_gt(r.n, 5, "%d", (int)r.n);
}

/* ---- namespaces ---------------------------------------------------------------------------------------------------------- */

/* False: not allowed here. */
static bool room_of_ones_own(int spaces)
{
	if (!unshare(spaces) || !unshare(CLONE_NEWUSER | spaces))
		return true;
	return false;
}

static void bare_mounts(void)
{
	/* Else what is mounted here might be seen outside. */
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		cr_skip_test("in a chroot whose root is no mount: %s", strerror(errno));
	cr_assert_eq(mount("none", "/tmp", "tmpfs", MS_RDONLY, NULL), 0);
	cr_assert_eq(mount("none", "/dev/shm", "tmpfs", 0, "size=4k"), 0);
	cr_assert_lt(open("/tmp/x", O_CREAT | O_WRONLY, 0600), 0);
	cr_assert_eq(errno, EROFS);
}

Test(process_rooms, no_places_to_write)
{
	struct processes p = { .layout = "0,1|2,3" };

	NEEDS_HOST("a driver may need /tmp and /dev/shm");
	if (!room_of_ones_own(CLONE_NEWNS))
		cr_skip_test("unshare(CLONE_NEWNS) is not allowed here");
	bare_mounts();
	unsetenv("HOME");
	unsetenv("TMPDIR");
	unsetenv("XDG_RUNTIME_DIR");
	RANKS_OK(processes_world(&p, everything, &p));
}

/* No interface is up, not even loopback. */
Test(process_rooms, no_network)
{
	struct processes p = { .layout = "0,1|2,3" };

	NEEDS_LAYOUT(p.layout);
	if (!room_of_ones_own(CLONE_NEWNET))
		cr_skip_test("unshare(CLONE_NEWNET) is not allowed here");
	RANKS_OK(processes_world(&p, everything, &p));
}

/* ---- address spaces ------------------------------------------------------------------------------------------------------ */

struct spaces {
	struct processes p;
	_Atomic uintptr_t heap[PROCESSES_MOST];
};

/* Forked processes would map everything alike: each keeps another part of its address space occupied, in pieces smaller than a
   heap, so that none is left that would do. */
static int in_another_space(int rank, void *arg)
{
	struct spaces *s = arg;
	struct spmt_attr attr = ranks_attr(rank, s->p.nranks, &s->p.uid[0]);
	spmt_comm *comm;
	void *block;

	for (int i = 0; i < 512 * (rank + 1); i++)
		REQUIRE(mmap(NULL, 4u << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
				-1, 0) != MAP_FAILED);
	attr.heap_size = 16u << 20;
	REQUIRE_OK(spmt_init(&attr, &comm));
	ranks_watch(comm);
	REQUIRE_OK(spmt_malloc(comm, 64, &block));
	atomic_store(&s->heap[rank], (uintptr_t)block);
	REQUIRE_OK(spmt_free(comm, block));
	TRY(everything(comm, &s->p));
	ranks_watch(NULL);
	REQUIRE_OK(spmt_finalize(comm));
	return 0;
}

Test(process_rooms, other_address_spaces)
{
	struct spaces *s = processes_shared(sizeof(*s));
	unsigned long heaps[4];

	NEEDS_HOST("a driver chooses where heaps are mapped");
	cr_assert_not_null(s);
	s->p.layout = "0|1|2|3";
	RANKS_OK(processes_run(&s->p, in_another_space, s));
	for (int i = 0; i < 4; i++)
		heaps[i] = atomic_load(&s->heap[i]);
	for (int i = 0; i < 4; i++)
		for (int j = 0; j < i; j++)
			cr_expect(heaps[i] != heaps[j], "ranks %d and %d: both at %#lx", i, j,
				heaps[i]);
}

/* ---- sockets ------------------------------------------------------------------------------------------------------------- */

/* Of this process: how many listen, and whether any is of another family than AF_UNIX. */
static int listening(bool *foreign)
{
	int n = 0;

	*foreign = false;
	for (int fd = 0; fd < 256; fd++) {
		struct sockaddr_storage a;
		socklen_t size = sizeof(a), one = sizeof(int);
		int listens = 0;

		if (getsockname(fd, (struct sockaddr *)&a, &size))
			continue;
		*foreign |= a.ss_family != AF_UNIX;
		if (!getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &one))
			n += listens;
	}
	return n;
}

/* Rank 1 looks while rank 0, in its process, waits for it and rank 2. */
static int looks(int rank, void *arg)
{
	struct processes *p = arg;
	struct spmt_attr attr = ranks_attr(rank, p->nranks, &p->uid[0]);
	_Atomic bool *looked = p->shared;
	bool foreign = true;
	spmt_comm *comm;

	if (rank == 1) {
		for (int ms = 0; listening(&foreign) == 0 && ms < 5000; ms++)
			sleep_ms(1);
		REQUIRE_EQ(listening(&foreign), 1);
		REQUIRE(!foreign);
		atomic_store(looked, true);
	}
	while (rank == 2 && !atomic_load(looked))
		sleep_ms(1);
	REQUIRE_OK(spmt_init(&attr, &comm));
	ranks_watch(comm);
	listening(&foreign);
	REQUIRE(!foreign);
	REQUIRE_OK(spmt_barrier(comm));
	ranks_watch(NULL);
	REQUIRE_OK(spmt_finalize(comm));
	return 0;
}

Test(process_rooms, nothing_listens_beyond_the_node)
{
	struct processes p = { .layout = "0,1|2" };

	NEEDS_HOST("a driver has sockets of its own");
	p.shared = processes_shared(sizeof(bool));
	RANKS_OK(processes_run(&p, looks, &p));
}

/* ---- strangers ----------------------------------------------------------------------------------------------------------- */

struct hunted {
	_Atomic int ready, over;
	_Atomic uintptr_t block;
};

static const char treasure[] = "what nobody may read";

/* Opens whatever /proc shows of the process. */
static int pry(pid_t pid, const char *dir)
{
	char path[64], file[400];
	int opened = 0;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, dir);
	d = opendir(path);
	for (struct dirent *e; d && (e = readdir(d));) {
		int fd;

		snprintf(file, sizeof(file), "%s/%s", path, e->d_name);
		fd = e->d_name[0] == '.' ? -1 : open(file, O_RDONLY);
		opened += fd >= 0;
		if (fd >= 0)
			close(fd);
	}
	if (d)
		closedir(d);
	return opened;
}

static int copies(pid_t pid, uintptr_t from)
{
	char text[sizeof(treasure)] = "";
	struct iovec to = { text, sizeof(text) }, remote;

	memcpy(&remote.iov_base, &from, sizeof(from));
	remote.iov_len = sizeof(text);
	return process_vm_readv(pid, &to, 1, &remote, 1, 0) > 0;
}

static int steals(pid_t pid)
{
	int fds = 0, at = (int)syscall(SYS_pidfd_open, pid, 0);

	for (int fd = 3; at >= 0 && fd < 64; fd++)
		fds += syscall(SYS_pidfd_getfd, at, fd, 0) >= 0;
	return fds;
}

/* As nobody, with the uid in hand: 0, or a number that tells what went through. */
static int nobody_tries(struct processes *p)
{
	struct hunted *h = p->shared;
	struct spmt_attr attr = ranks_attr(0, p->nranks, &p->uid[0]);
	spmt_comm *comm;
	int bad = 0;

	if (setgroups(0, NULL) || setgid(65534) || setuid(65534))
		return 99;
	attr.timeout_ms = 500;
	for (int i = 0; i < p->n; i++) {
		bad |= pry(p->pid[i], "fd") ? 1 : 0;
		bad |= pry(p->pid[i], "map_files") ? 2 : 0;
		bad |= copies(p->pid[i], atomic_load(&h->block)) ? 4 : 0;
		bad |= steals(p->pid[i]) ? 8 : 0;
	}
	return spmt_init(&attr, &comm) < 0 ? bad : bad | 16;
}

/* The same means lead there for who may: the test would notice. */
static int owner_tries(struct processes *p)
{
	struct hunted *h = p->shared;

	return pry(p->pid[0], "fd") > 0 && copies(p->pid[0], atomic_load(&h->block)) ? 0 : 1;
}

static int status_of(int (*fn)(struct processes *p), struct processes *p)
{
	pid_t pid = fork();
	int status = 0;

	if (!pid) {
		ranks_deadline(20);
		_exit(fn(p));
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int tried[2] = { -1, -1 };

static void watch_strangers(struct processes *p)
{
	struct hunted *h = p->shared;

	for (int ms = 0; atomic_load(&h->ready) < p->nranks && ms < 20000; ms++)
		sleep_ms(1);
	tried[0] = status_of(nobody_tries, p);
	tried[1] = status_of(owner_tries, p);
	atomic_store(&h->over, 1);
}

static int hunted(spmt_comm *comm, void *arg)
{
	struct hunted *h = arg;
	char *block;

	REQUIRE_OK(spmt_malloc(comm, sizeof(treasure), (void **)&block));
	REQUIRE_OK(spmt_copy_in(comm, block, treasure, sizeof(treasure)));
	if (spmt_rank(comm) == 0)
		atomic_store(&h->block, (uintptr_t)block);
	REQUIRE_OK(spmt_barrier(comm));
	atomic_fetch_add(&h->ready, 1);
	while (!atomic_load(&h->over))
		sleep_ms(1);
	return spmt_barrier(comm);
}

Test(process_rooms, another_user_gets_nowhere)
{
	struct processes p = { .layout = "0,1|2", .watch = watch_strangers };

	NEEDS_HOST("its heap is memory that /proc shows");
	if (geteuid())
		cr_skip_test("only root can become nobody");
	p.shared = processes_shared(sizeof(struct hunted));
	RANKS_OK(processes_world(&p, hunted, p.shared));
	cr_expect_eq(tried[0], 0, "nobody: %d", tried[0]);
	cr_expect_eq(tried[1], 0, "the owner: %d", tried[1]);
}
