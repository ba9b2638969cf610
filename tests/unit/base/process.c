/* SPDX-License-Identifier: MIT */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/base.h"
#include "src/base/env.h"
#include "src/base/fault.h"
#include "src/base/log.h"
#include "src/base/process.h"

static int exit_of_child(int (*fn)(void *arg), void *arg)
{
	int status = -1;
	pid_t pid = fork();

	if (!pid)
		_exit(fn(arg));
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int is_zero(void *arg)
{
	return *(int *)arg == 0 ? 0 : 1;
}

Test(process, a_child_sees_zeros)
{
	int *page = process_pages(100);

	cr_assert_not_null(page);
	cr_assert_eq((uintptr_t)page % 4096, 0);
	cr_assert_eq(*page, 0);
	*page = 5;
	cr_assert_eq(exit_of_child(is_zero, page), 0);
	cr_assert_eq(*page, 5);
	process_pages_free(page, 100);
	process_pages_free(NULL, 100);
}

Test(process, pages_can_be_refused)
{
	void *_Atomic slot = NULL;

	fault_arm(1u << FAULT_MAP, 1);
	cr_assert_null(process_pages(1));
	fault_arm(1u << FAULT_MAP, 1);
	cr_assert_null(process_state(&slot, 1));
	cr_assert_not_null(process_state(&slot, 1));
}

Test(process, a_kept_descriptor_is_none_of_the_standard_streams)
{
	int fd = open("/dev/null", O_RDONLY);

	cr_assert_gt(fd, 2);
	cr_assert_eq(process_fd(fd), fd);
	close(fd);
	errno = ENFILE;
	cr_assert_eq(process_fd(-1), -1);
	cr_assert_eq(errno, ENFILE);
}

/* Exit status: what is wrong, 0: nothing. */
static int moves(void *arg)
{
	const struct rlimit none = { 3, 3 };
	int fd;

	(void)arg;
	close(0);
	if (open("/dev/null", O_RDONLY) != 0)
		return 1;
	fd = process_fd(0);
	if (fd < 3 || fcntl(fd, F_GETFD) != FD_CLOEXEC)
		return 2;
	if (fcntl(0, F_GETFD) >= 0)
		return 3;
	if (open("/dev/null", O_RDONLY) != 0 || setrlimit(RLIMIT_NOFILE, &none))
		return 4;
	if (process_fd(0) != -1 || errno != EMFILE)
		return 5;
	return fcntl(0, F_GETFD) >= 0 ? 6 : 0;
}

Test(process, a_kept_descriptor_is_moved)
{
	cr_assert_eq(exit_of_child(moves, NULL), 0);
}

/* Without a descriptor it is not known which node this is. Nobody may take it for another one; and it is asked again. */
static int hosts(void *arg)
{
	const unsigned char none[16] = { 0 };
	struct rlimit limit;
	unsigned char host[16];
	rlim_t before;

	(void)arg;
	if (getrlimit(RLIMIT_NOFILE, &limit))
		return 1;
	before = limit.rlim_cur;
	limit.rlim_cur = 0;
	if (setrlimit(RLIMIT_NOFILE, &limit))
		return 2;
	if (process_host(host) != -EMFILE)
		return 3;
	limit.rlim_cur = before;
	if (setrlimit(RLIMIT_NOFILE, &limit) || process_host(host))
		return 4;
	return memcmp(host, none, sizeof(none)) ? 0 : 5;
}

Test(process, a_host_without_descriptors_is_no_other_host)
{
	cr_assert_eq(exit_of_child(hosts, NULL), 0);
}

static void *_Atomic shared_slot;

static void *get_state(void *arg)
{
	pthread_barrier_wait(arg);
	return process_state(&shared_slot, 64);
}

Test(process, all_threads_get_the_state_first_published)
{
	pthread_barrier_t barrier;
	pthread_t threads[8];
	void *state;

	pthread_barrier_init(&barrier, NULL, 8);
	for (int i = 0; i < 8; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, get_state, &barrier), 0);
	for (int i = 0; i < 8; i++) {
		pthread_join(threads[i], &state);
		cr_expect_not_null(state);
		cr_expect_eq(state, process_state(&shared_slot, 64));
	}
	pthread_barrier_destroy(&barrier);
}

static int has_other_nonce(void *arg)
{
	unsigned char nonce[16];

	return process_nonce(nonce) || !memcmp(nonce, arg, sizeof(nonce));
}

Test(process, the_nonce_is_constant_here_and_another_in_a_child)
{
	static const unsigned char zeros[16];
	unsigned char a[16], b[16];

	cr_assert_eq(process_nonce(a), 0);
	cr_assert_eq(process_nonce(b), 0);
	cr_assert_eq(memcmp(a, b, sizeof(a)), 0);
	cr_assert_neq(memcmp(a, zeros, sizeof(a)), 0);
	cr_assert_eq(exit_of_child(has_other_nonce, a), 0);
}

Test(process, a_nonce_that_cannot_be_made_is_an_error)
{
	unsigned char nonce[16];

	fault_arm(1u << FAULT_MAP, 1);
	cr_assert_eq(process_nonce(nonce), -ENOMEM);
	fault_arm(1u << FAULT_MAP, 1);
	cr_assert_eq(process_draw(&(uint32_t){ 0 }), -ENOMEM);
	cr_assert_eq(process_nonce(nonce), 0);
}

static int draws_another(void *arg)
{
	uint32_t number;

	return process_draw(&number) || number - *(uint32_t *)arg < 4096;
}

Test(process, a_number_is_drawn_once_and_by_no_child)
{
	uint32_t first, number;

	cr_assert_eq(process_draw(&first), 0);
	for (uint32_t i = 1; i < 2000; i++) {
		cr_assert_eq(process_draw(&number), 0);
		cr_assert_eq(number, first + i);
	}
	cr_assert_eq(exit_of_child(draws_another, &first), 0);
}

Test(process, random_fills_all_of_a_large_buffer)
{
	unsigned char *buf = calloc(1, 1 << 20), *tail = buf + (1 << 20) - 32;
	static const unsigned char zeros[32];

	cr_assert_not_null(buf);
	cr_assert_eq(process_random(buf, 1 << 20), 0);
	cr_assert_neq(memcmp(tail, zeros, 32), 0);
	cr_assert_neq(memcmp(buf, tail, 32), 0);
	free(buf);
}

Test(process, cpus_follow_the_affinity_mask)
{
	cpu_set_t all, one;
	size_t cpu = 0;

	cr_assert_eq(sched_getaffinity(0, sizeof(all), &all), 0);
	cr_assert_eq(process_cpus(), CPU_COUNT(&all));
	while (!CPU_ISSET(cpu, &all))
		cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	cr_assert_eq(sched_setaffinity(0, sizeof(one), &one), 0);
	cr_assert_eq(process_cpus(), 1);
}

Test(process, the_clock_rises)
{
	int64_t a = process_now(), b;

	usleep(2000);
	b = process_now();
	cr_assert_geq(b - a, 2000000);
	cr_assert_lt(b - a, 60ll * 1000000000);
}

/* What log_line writes to stderr at a level of SPMT_LOG. */
static size_t logged(const char *level, char *text, size_t size)
{
	int fds[2], keep = dup(STDERR_FILENO);
	const struct env *env;
	ssize_t n;

	setenv("SPMT_LOG", level, 1);
	cr_assert_eq(env_get(&env), 0);
	cr_assert_eq(pipe2(fds, O_NONBLOCK), 0);
	dup2(fds[1], STDERR_FILENO);
	errno = ENOTTY;
	log_line(LOG_WARN, "heap of %d", 5);
	log_line(LOG_INFO, "not %s", "asked");
	log_line(LOG_SLIP, "a slip");
	cr_assert_eq(errno, ENOTTY);
	dup2(keep, STDERR_FILENO);
	n = read(fds[0], text, size - 1);
	text[n > 0 ? n : 0] = '\0';
	return n > 0 ? (size_t)n : 0;
}

Test(log, lines_up_to_the_level_are_written)
{
	char text[256];

	cr_assert_gt(logged("warn", text, sizeof(text)), 0);
	cr_assert_str_eq(text, "spmt: warn: heap of 5\nspmt: warn: a slip\n");
}

Test(log, nothing_is_written_unasked)
{
	char text[256];

	cr_assert_eq(logged("none", text, sizeof(text)), 0);
}

/* Exit status: 1 where the line changes errno. */
static int says_into(int fd)
{
	const struct env *env;

	setenv("SPMT_LOG", "warn", 1);
	if (fd < 0 || env_get(&env) || dup2(fd, STDERR_FILENO) < 0)
		return 2;
	errno = ENOTTY;
	log_line(LOG_WARN, "for nobody");
	return errno != ENOTTY;
}

static int says_where_nobody_reads(void *unused)
{
	int fds[2];

	(void)unused;
	if (pipe(fds) || close(fds[0]))
		return 2;
	return says_into(fds[1]);
}

static int says_into_a_full_file(void *unused)
{
	const struct rlimit none = { 0, 0 };

	(void)unused;
	if (setrlimit(RLIMIT_FSIZE, &none))
		return 2;
	return says_into(open("/tmp", O_TMPFILE | O_WRONLY, 0600));
}

/* One of the program's own, which it has blocked, is still there. */
static int keeps_the_signal(void *unused)
{
	sigset_t set;
	int rc;

	sigemptyset(&set);
	sigaddset(&set, SIGPIPE);
	if (pthread_sigmask(SIG_BLOCK, &set, NULL) || raise(SIGPIPE))
		return 2;
	rc = says_where_nobody_reads(unused);
	return rc || sigpending(&set) || !sigismember(&set, SIGPIPE);
}

Test(log, a_line_that_nobody_takes_ends_no_program)
{
	signal(SIGPIPE, SIG_DFL);
	signal(SIGXFSZ, SIG_DFL);
	cr_assert_eq(exit_of_child(says_where_nobody_reads, NULL), 0);
	cr_assert_eq(exit_of_child(says_into_a_full_file, NULL), 0);
	cr_assert_eq(exit_of_child(keeps_the_signal, NULL), 0);
}

/* Else a line of the library's threads would read it while another thread sets a variable, which moves them all. */
Test(log, the_environment_is_read_once)
{
	const struct env *env;
	char text[256];

	unsetenv("SPMT_LOG");
	cr_assert_not(env_said_log());
	cr_assert_eq(env_get(&env), 0);
	cr_assert_gt(logged("none", text, sizeof(text)), 0);
	cr_assert_str_eq(text, "spmt: warn: a slip\n");
}

/* ---- what a child lets go of --------------------------------------------------------------- */

static int null_opened(int arg)
{
	(void)arg;
	return open("/dev/null", O_RDWR | O_CLOEXEC);
}

static int wakes(int arg)
{
	return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, arg);
}

static int is_gone(void *arg)
{
	return fcntl(*(int *)arg, F_GETFD) < 0 ? 0 : 1;
}

/* Of its own, which its children do not keep. */
static int owns_too(void *arg)
{
	int fd;

	if (is_gone(arg))
		return 2;
	fd = process_own(wakes, 0);
	return fd < 0 ? 3 : exit_of_child(is_gone, &fd);
}

Test(process, a_child_lets_go_of_what_is_owned)
{
	int fd = process_own(wakes, 0), other = wakes(0);

	cr_assert(fd >= 0 && other >= 0);
	cr_expect_eq(exit_of_child(is_gone, &fd), 0);
	cr_expect_eq(exit_of_child(is_gone, &other), 1);
	cr_expect_eq(exit_of_child(owns_too, &fd), 0);
	cr_expect_geq(fcntl(fd, F_GETFD), 0);
	/* its number is somebody else's by now */
	cr_assert_eq(dup2(other, fd), fd);
	cr_expect_eq(exit_of_child(is_gone, &fd), 1);
	close(fd);
	cr_expect_eq(process_own(null_opened, 0), fd);
	cr_expect_eq(exit_of_child(is_gone, &fd), 0);
}

Test(process, what_cannot_be_owned_is_not_made)
{
	errno = 0;
	fault_arm(1u << FAULT_ALLOC, 1);
	cr_expect_eq(process_own(wakes, 0), -1);
	cr_expect_eq(errno, ENOMEM);
	fault_arm(1u << FAULT_MAP, 1);
	cr_expect_eq(process_own(wakes, 0), -1);
	cr_expect_eq(errno, ENOMEM);
	cr_expect_eq(process_own(wakes, -1), -1);
	cr_expect_eq(errno, EPROTONOSUPPORT);
	cr_expect_geq(process_own(wakes, 0), 0);
}

static struct {
	atomic_int made; /* what is being made, 0: nothing */
	atomic_bool over;
} making;

static int slowly(int arg)
{
	int fd = wakes(arg);

	atomic_store(&making.made, fd);
	usleep(30000);
	return fd;
}

static void *make_some(void *arg)
{
	while (!atomic_load(&making.over)) {
		int fd = process_own(slowly, 0);

		usleep(1000);
		atomic_store(&making.made, 0);
		close(fd);
	}
	return arg;
}

Test(process, no_child_is_forked_while_it_is_made)
{
	pthread_t thread;

	cr_assert_eq(pthread_create(&thread, NULL, make_some, NULL), 0);
	for (int i = 0; i < 5; i++) {
		int fd;

		while (!(fd = atomic_load(&making.made)))
			sched_yield();
		cr_expect_eq(exit_of_child(is_gone, &fd), 0);
		while (atomic_load(&making.made))
			sched_yield();
	}
	atomic_store(&making.over, true);
	pthread_join(thread, NULL);
}

static void *own_mask(void *arg)
{
	pthread_sigmask(SIG_SETMASK, NULL, arg);
	return NULL;
}

Test(process, a_thread_takes_faults_alone)
{
	pthread_t thread;
	sigset_t mask, blocked, after;

	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR2);
	pthread_sigmask(SIG_SETMASK, &blocked, NULL);
	cr_assert_eq(process_thread(&thread, 0, own_mask, &mask), 0);
	pthread_sigmask(SIG_SETMASK, NULL, &after);
	pthread_join(thread, NULL);
	cr_expect(sigismember(&mask, SIGTERM) == 1 && sigismember(&mask, SIGUSR1) == 1);
	cr_expect(sigismember(&mask, SIGSEGV) == 0 && sigismember(&mask, SIGBUS) == 0);
	cr_expect(sigismember(&after, SIGUSR2) == 1, "its starter keeps its own mask");
	cr_expect_eq(sigismember(&after, SIGTERM), 0);
}

Test(process, a_thread_that_cannot_be_started_leaves_the_mask)
{
	struct rlimit none = { 0, 0 };
	pthread_t thread;
	sigset_t after;

	if (SANITIZE_ADDRESS)
		cr_skip_test("a sanitizer has more address space than can be left");
	cr_assert_eq(getrlimit(RLIMIT_AS, &none), 0);
	none.rlim_cur = (rlim_t)1 << 40;
	cr_assert_eq(setrlimit(RLIMIT_AS, &none), 0);
	/* No address space is left for such a stack. */
	cr_expect_neq(process_thread(&thread, (size_t)1 << 46, own_mask, &after), 0);
	pthread_sigmask(SIG_SETMASK, NULL, &after);
	cr_expect_eq(sigismember(&after, SIGTERM), 0);
}
