/* SPDX-License-Identifier: MIT */
#include <criterion/criterion.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "spmt.h"
#include "src/base/status.h"

Test(status, fail_returns_the_code_and_keeps_the_sentence)
{
	cr_assert_str_eq(status_sentence(), "");
	cr_assert_eq(fail(-EINVAL, "spmt_put: rank %d: pe %d of %d", 1, 9, 8), -EINVAL);
	cr_assert_str_eq(status_sentence(), "spmt_put: rank 1: pe 9 of 8");
}

Test(status, fail_errno_appends_the_text_of_errno)
{
	cr_assert_eq(fail_errno(ENOMEM, "heap of %d bytes", 5), -ENOMEM);
	cr_assert_str_eq(status_sentence(), "heap of 5 bytes: Cannot allocate memory");
	cr_assert_eq(fail_errno(0, "x"), -EIO);
	cr_assert_str_eq(status_sentence(), "x: Input/output error");
}

Test(status, a_failure_keeps_errno)
{
	errno = ENOTTY;
	fail_errno(ENOMEM, "x");
	cr_assert_eq(errno, ENOTTY);
}

Test(status, a_sentence_is_one_line_that_prints)
{
	fail(-1, "SPMT_X=%s is", "5\r\n\x1b[2J\x7f caf\xc3\xa9");
	cr_assert_str_eq(status_sentence(), "SPMT_X=5???[2J? caf\xc3\xa9 is");
	fail_errno(EIO, "%s", "a\tb");
	cr_assert_str_eq(status_sentence(), "a?b: Input/output error");
	fail_with(-1, "a\nb");
	cr_assert_str_eq(status_sentence(), "a?b");
}

Test(status, long_sentences_are_cut)
{
	char text[2 * STATUS_SENTENCE];

	memset(text, 'a', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	fail(-1, "%s", text);
	cr_assert_eq(strlen(status_sentence()), STATUS_SENTENCE - 1);
	fail_errno(EIO, "%s", text);
	cr_assert_eq(strlen(status_sentence()), STATUS_SENTENCE - 1);
	fail_with(-1, text);
	cr_assert_eq(strlen(status_sentence()), STATUS_SENTENCE - 1);
}

/* "0, 1, .. 99, .." */
static void counts_up(const char *list)
{
	int n = 0;

	for (char *end; *list && list[1] != '.'; list = end + 1, n++) {
		cr_assert_eq(strtol(list, &end, 10), n, "%s", list);
		cr_assert_eq(*end, ',', "%s", list);
	}
	cr_assert_gt(n, 50);
	cr_assert_str_eq(list, " ..");
}

/* Half a number would be another rank. */
Test(status, a_list_is_cut_behind_a_number)
{
	for (int before = 0; before < 8; before++) {
		struct text text = { .used = 0 };

		text_add(&text, "%.*s:", before, "abcdefgh");
		for (int i = 0; i < 300; i++)
			text_add(&text, "%s %d", i ? "," : "", i);
		cr_assert_lt(strlen(text.bytes), STATUS_SENTENCE);
		counts_up(strchr(text.bytes, ':') + 1);
		fail_call(-1, "spmt_barrier", "the world is broken: %s", text.bytes);
		counts_up(strrchr(status_sentence(), ':') + 1);
		fail_errno(EIO, "%s", text.bytes);
		cr_assert_str_eq(status_sentence() + strlen(status_sentence()) - 3, " ..");
	}
}

/* What fits is whole, to the last byte. */
Test(status, a_sentence_that_fits_is_not_cut)
{
	struct text text = { .used = 0 };

	for (int i = 0; i < STATUS_SENTENCE - 1; i++)
		text_add(&text, "%s", i % 8 ? "a" : " ");
	cr_assert_eq(strlen(text.bytes), STATUS_SENTENCE - 1);
	cr_assert(!strchr(text.bytes, '.'));
	fail(-1, "%s", text.bytes);
	cr_assert_str_eq(status_sentence(), text.bytes);
	text_add(&text, "a");
	cr_assert(strstr(text.bytes, " .."));
}

Test(status, the_last_sentence_may_be_an_argument)
{
	fail(-1, "cause");
	fail(-2, "because of %s", status_sentence());
	cr_assert_str_eq(status_sentence(), "because of cause");
	cr_assert_eq(fail_with(-3, status_sentence()), -3);
	cr_assert_str_eq(status_sentence(), "because of cause");
}

Test(status, a_sentence_says_whose_it_is)
{
	struct status_saved saved;
	struct cause cause;

	fail(-1, "spmt_put: rank 3: in words alone");
	cr_expect(!status_names("spmt_put") && !status_names(NULL) && !status_names_rank());
	fail_rank(-2, 3, "%s to rank %d", "a copy", 4);
	cr_expect_str_eq(status_sentence(), "rank 3: a copy to rank 4");
	cr_expect(!status_names(NULL) && status_names_rank());
	status_save(&saved);
	cr_assert_eq(fail_call(-3, "spmt_put", "%s", status_sentence()), -3);
	cr_expect_str_eq(status_sentence(), "spmt_put: rank 3: a copy to rank 4");
	cr_expect(status_names("spmt_put") && status_names(NULL) && !status_names_rank());
	cr_expect(!status_names("spmt_get") && !status_names("spmt_pu"));
	cause_last(&cause, -3);
	cr_assert_eq(fail_again(-2, &saved), -2);
	cr_expect(!status_names(NULL) && status_names_rank());
	cr_assert_eq(fail_cause(&cause), -3);
	cr_expect(status_names("spmt_put") && !status_names_rank());
	cr_assert_eq(fail_call_errno(EIO, "spmt_get", "file %d", 1), -EIO);
	cr_expect_str_eq(status_sentence(), "spmt_get: file 1: Input/output error");
	cr_expect(status_names("spmt_get"));
	fail_with(-4, "plain");
	cr_expect(!status_names(NULL) && !strcmp(status_sentence(), "plain"));
}

Test(status, save_and_restore)
{
	struct status_saved saved;

	fail(-1, "the cause");
	status_save(&saved);
	fail(-2, "the clean-up");
	status_restore(&saved);
	cr_assert_str_eq(status_sentence(), "the cause");
}

static void *other_thread(void *arg)
{
	(void)arg;
	fail(-1, "theirs");
	return NULL;
}

Test(status, sentences_are_per_thread)
{
	pthread_t thread;

	fail(-1, "mine");
	cr_assert_eq(pthread_create(&thread, NULL, other_thread, NULL), 0);
	pthread_join(thread, NULL);
	cr_assert_str_eq(status_sentence(), "mine");
}

Test(status, every_code_has_a_text_of_its_own)
{
	static const int codes[] = { 0, -EINVAL, -ENOMEM, -EBADF, SPMT_ERR_TIMEOUT,
		SPMT_ERR_ABORTED, SPMT_ERR_PEER_DEAD, SPMT_ERR_MISMATCH, SPMT_ERR_FORKED,
		SPMT_ERR_UNSUPPORTED, SPMT_ERR_BROKEN };
	static const int unknown[] = { 1, INT_MAX, INT_MIN, -4095, -4096, -10000, -99999 };

	for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
		cr_expect_str_neq(status_text(codes[i]), "unknown code", "%d", codes[i]);
		for (size_t j = 0; j < i; j++)
			cr_expect_str_neq(status_text(codes[i]), status_text(codes[j]));
	}
	for (size_t i = 0; i < ARRAY_SIZE(unknown); i++)
		cr_expect_str_eq(status_text(unknown[i]), "unknown code", "%d", unknown[i]);
}
