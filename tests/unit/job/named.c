/* SPDX-License-Identifier: MIT */
/* Jobs by SPMT_UID and SPMT_PROCESS: what is understood, and what is told of the rest. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "spmt/job/launch.h"
#include "spmt/job/named.h"
#include "src/base/status.h"

enum { DIGITS = NAMED_DIGITS };

static void uid_text(char text[DIGITS + 2], struct uid *uid)
{
	spmt_uid bytes;

	cr_assert_eq(spmt_uid_create(&bytes), 0);
	cr_assert_eq(uid_read("test", &bytes, uid), 0);
	for (size_t i = 0; i < sizeof(bytes); i++)
		snprintf(text + 2 * i, 3, "%02x", bytes.bytes[i]);
}

Test(named, a_uid_as_text)
{
	char text[DIGITS + 8];
	struct uid made, read;

	uid_text(text, &made);
	cr_assert_eq(named_uid("here", text, DIGITS, &read), 0, "%s", status_sentence());
	cr_expect_eq(memcmp(&made, &read, sizeof(made)), 0);
	strcat(text, "\r\n");
	text[0] = '7';
	for (char *at = text; *at; at++)
		*at = *at >= 'a' && *at <= 'f' ? (char)(*at - 'a' + 'A') : *at;
	cr_assert_eq(named_uid("here", text, DIGITS + 2, &read), 0, "%s", status_sentence());
	cr_expect_eq(memcmp(&made, &read, sizeof(made)), 0);
}

static void refused(const char *text, size_t n, const char *why)
{
	struct uid uid;

	cr_expect_eq(named_uid("here", text, n, &uid), -EINVAL, "%s", why);
	cr_expect(!strncmp(status_sentence(), "here: ", 6) && strstr(status_sentence(), why),
		"%s, not %s", status_sentence(), why);
}

Test(named, text_that_is_no_uid)
{
	char text[DIGITS + 8], kept;
	struct uid uid;

	refused("", 0, "0 hexadecimal digits, a uid has 256; spmt-info --uid makes one");
	refused("uid", 3, "character 1 is no hexadecimal digit");
	uid_text(text, &uid);
	refused(text, DIGITS - 1, "255 hexadecimal digits, a uid has 256");
	strcat(text, "0");
	refused(text, DIGITS + 1, "257 hexadecimal digits");
	kept = text[100];
	text[100] = kept == '0' ? '1' : '0';
	refused(text, DIGITS, "damaged");
	text[100] = kept;
	text[17] = '1'; /* of the version's first byte */
	refused(text, DIGITS, "version 1, this library knows 2");
	text[0] = '0';
	refused(text, DIGITS, "not a uid");
	text[9] = ' ';
	refused(text, DIGITS, "character 10 is no hexadecimal digit");
}

Test(named, processes)
{
	static const struct {
		const char *text;
		struct job_info want;
	} good[] = { { "0/1", { 0, 1, 0 } }, { "9/16", { 9, 16, 9 } }, { "9/16/1", { 9, 16, 1 } },
		{ "1/2/0", { 1, 2, 0 } }, { "32767/32768", { 32767, 32768, 32767 } } };
	static const char *const bad[] = { "", "0", "1/", "/2", "2/2", "-1/2", "0/0", "1/2/",
		"1/2/2", "0/2/0/0", "1/2/-1", " 1/2", "1 /2", "1/2 ", "a/b", "0x1/2", "0/32769",
		"99999999999999999999/2" };
	struct job_info got;

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		cr_expect_eq(named_process(good[i].text, &got), 0, "%s", good[i].text);
		cr_expect_eq(memcmp(&got, &good[i].want, sizeof(got)), 0, "%s", good[i].text);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		cr_expect_eq(named_process(bad[i], &got), -EINVAL, "%s", bad[i]);
		cr_expect(strstr(status_sentence(), "SPMT_PROCESS="));
	}
}

static void join_fails(const char *uid, const char *process, int code, const char *why)
{
	struct spmt_attr attr = SPMT_ATTR_INIT;
	spmt_comm *comm;

	setenv("SPMT_UID", uid, 1);
	if (process)
		setenv("SPMT_PROCESS", process, 1);
	attr.timeout_ms = 100;
	cr_expect_eq(spmt_init(&attr, &comm), code, "%s", spmt_last_error());
	cr_expect(strstr(spmt_last_error(), why), "%s", spmt_last_error());
}

/* The environment is read once a process. */
Test(named, uid_without_process)
{
	join_fails("123", NULL, -EINVAL, "SPMT_UID is set and SPMT_PROCESS is not");
}

Test(named, process_that_is_none)
{
	join_fails("123", "two of three", -EINVAL, "SPMT_PROCESS=two of three: wanted are");
}

Test(named, uid_that_is_none)
{
	join_fails("123", "0/2", -EINVAL,
		"spmt_init: SPMT_UID, which is no path without a / (./FILE): 3 hexadecimal digits");
}

Test(named, a_path_without_a_slash)
{
	join_fails("uid.txt", "0/2", -EINVAL,
		"SPMT_UID, which is no path without a / (./FILE): character 1 is no hexadecimal digit");
}

Test(named, no_file)
{
	join_fails("/nosuch/uid", "0/2", SPMT_ERR_TIMEOUT,
		"SPMT_UID=/nosuch/uid: there is no such file, or no whole uid in it, after ");
}

Test(named, no_file_but_a_folder)
{
	join_fails("/proc/self", "0/2", -EISDIR, "SPMT_UID=/proc/self");
}

Test(named, file_of_something_else)
{
	join_fails("/proc/self/maps", "0/2", -EINVAL, "SPMT_UID=/proc/self/maps: ");
}

Test(named, file_of_little_else)
{
	join_fails("/proc/self/comm", "0/2", -EINVAL, "SPMT_UID=/proc/self/comm: ");
}

/* What else of the environment is wrong is not taken for a missing uid. */
Test(named, mistake_beside_the_job)
{
	setenv("SPMT_CHANNELS", "99", 1);
	join_fails("./uid", "0/2", -EINVAL, "SPMT_CHANNELS=99 is not understood");
}

/* Two worlds one after the other, of all the job's processes, which is one. */
Test(named, worlds_of_a_job)
{
	char path[] = "/tmp/spmt-named-XXXXXX", text[DIGITS + 2];
	struct spmt_attr attr = SPMT_ATTR_INIT;
	int fd = mkstemp(path);
	struct uid uid;

	cr_assert_geq(fd, 0);
	setenv("SPMT_UID", path, 1);
	setenv("SPMT_PROCESS", "0/1", 1);
	setenv("SPMT_BACKEND", "host", 1);
	uid_text(text, &uid);
	cr_assert_eq(write(fd, text, DIGITS), (ssize_t)DIGITS);
	close(fd);
	attr.heap_size = 1 << 20;
	for (int i = 0; i < 2; i++) {
		spmt_comm *comm;

		cr_assert_eq(spmt_init(&attr, &comm), 0, "%s", spmt_last_error());
		cr_expect_eq(spmt_nranks(comm), 1);
		cr_expect_eq(spmt_finalize(comm), 0);
	}
	unlink(path);
}

/* The other processes count the world that this one has missed, as the file came too late. */
Test(named, a_call_that_found_no_file_counts)
{
	char path[] = "/tmp/spmt-named-XXXXXX", text[DIGITS + 2];
	struct spmt_attr attr = SPMT_ATTR_INIT;
	int fd = mkstemp(path);
	struct uid seed, second, got;
	struct job_info launch;
	uint64_t number = 2;

	cr_assert_geq(fd, 0);
	join_fails(path, "0/2", SPMT_ERR_TIMEOUT, "no whole uid in it");
	uid_text(text, &seed);
	cr_assert_eq(write(fd, text, DIGITS), (ssize_t)DIGITS);
	close(fd);
	cr_assert_eq(launch_uid(&attr, &got, &launch), 0, "%s", spmt_last_error());
	uid_derive(&seed, &number, sizeof(number), &second);
	cr_expect_eq(memcmp(got.id, second.id, sizeof(got.id)), 0);
	unlink(path);
}

static int finalize(spmt_comm *comm, void *arg)
{
	(void)arg;
	return spmt_finalize(comm);
}

/* Two of four ranks, from one thread. */
static int half(int process)
{
	struct spmt_attr attrs[2] = { SPMT_ATTR_INIT, SPMT_ATTR_INIT };
	spmt_comm *comms[2];
	int rc;

	for (int i = 0; i < 2; i++) {
		attrs[i].rank = 2 * process + i;
		attrs[i].nranks = 4;
		attrs[i].heap_size = 1 << 20;
	}
	rc = spmt_init_all(2, attrs, comms);
	if (rc) {
		fprintf(stderr, "process %d: %s\n", process, spmt_last_error());
		return rc;
	}
	return spmt_each(2, comms, finalize, NULL);
}

/* The child reads the environment anew. */
Test(named, ranks_of_a_job_from_one_thread)
{
	char path[] = "/tmp/spmt-named-XXXXXX", text[DIGITS + 2];
	int fd = mkstemp(path), status = -1;
	struct uid uid;
	pid_t pid;

	cr_assert_geq(fd, 0);
	setenv("SPMT_UID", path, 1);
	setenv("SPMT_PROCESS", "0/2", 1);
	setenv("SPMT_BACKEND", "host", 1);
	uid_text(text, &uid);
	cr_assert_eq(write(fd, text, DIGITS), (ssize_t)DIGITS);
	close(fd);
	pid = fork();
	cr_assert_geq(pid, 0);
	if (!pid) {
		setenv("SPMT_PROCESS", "1/2", 1);
		_exit(half(1) ? 1 : 0);
	}
	cr_expect_eq(half(0), 0);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_expect_eq(status, 0);
	unlink(path);
}
