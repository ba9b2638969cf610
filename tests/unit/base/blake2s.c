/* SPDX-License-Identifier: MIT */
/* The keyed hash against vectors of its authors and the self-test of RFC 7693. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "src/base/blake2s.h"

static const char *hex(const unsigned char *bytes, size_t n)
{
	static char text[2 * BLAKE2S_MOST + 1];

	for (size_t i = 0; i < n; i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
	return text;
}

static void count_up(unsigned char *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		bytes[i] = (unsigned char)i;
}

Test(blake2s, published_keyed_vectors)
{
	static const struct {
		size_t n;
		const char *digest;
	} rows[] = {
		{ 0, "48a8997da407876b3d79c0d92325ad3b89cbb754d86ab71aee047ad345fd2c49" },
		{ 1, "40d15fee7c328830166ac3f918650f807e7e01e177258cdc0a39b11f598066f1" },
		{ 63, "c65382513f07460da39833cb666c5ed82e61b9e998f4b0c4287cee56c3cc9bcd" },
		{ 64, "8975b0577fd35566d750b362b0897a26c399136df07bababbde6203ff2954ed4" },
		{ 65, "21fe0ceb0052be7fb0f004187cacd7de67fa6eb0938d927677f2398c132317a8" },
		{ 255, "3fb735061abc519dfe979e54c1ee5bfad0a9d858b3315bad34bde999efd724dd" },
	};
	unsigned char key[32], text[256], digest[32];

	count_up(key, sizeof(key));
	count_up(text, sizeof(text));
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct blake2s_part part = { text, rows[i].n };

		blake2s(key, sizeof(key), &part, 1, digest, sizeof(digest));
		cr_expect_str_eq(hex(digest, 32), rows[i].digest, "%zu bytes", rows[i].n);
	}
}

Test(blake2s, abc_of_the_rfc)
{
	struct blake2s_part part = { "abc", 3 };
	unsigned char digest[32];

	blake2s(NULL, 0, &part, 1, digest, sizeof(digest));
	cr_expect_str_eq(hex(digest, 32),
		"508c5e8c327c14e2e1a72ba34eeb452f37458b209ed63a294d999b4c86675982");
}

/* RFC 7693, appendix E: a Fibonacci generator feeds every digest length, keyed and not. */
static void sequence(unsigned char *out, size_t n, uint32_t seed)
{
	uint32_t a = 0xdead4badu * seed, b = 1;

	for (size_t i = 0; i < n; i++) {
		uint32_t t = a + b;

		a = b;
		b = t;
		out[i] = (unsigned char)(t >> 24);
	}
}

Test(blake2s, self_test_of_the_rfc)
{
	static const size_t digests[] = { 16, 20, 28, 32 }, inputs[] = { 0, 3, 64, 65, 255, 1024 };
	unsigned char in[1024], key[32], all[4 * 6 * 2 * 32], digest[32];
	size_t used = 0;
	struct blake2s_part part = { all, 0 };

	for (size_t d = 0; d < ARRAY_SIZE(digests); d++) {
		for (size_t i = 0; i < ARRAY_SIZE(inputs); i++) {
			struct blake2s_part text = { in, inputs[i] };
			size_t n = digests[d];

			sequence(in, inputs[i], (uint32_t)inputs[i]);
			blake2s(NULL, 0, &text, 1, all + used, n);
			sequence(key, n, (uint32_t)n);
			blake2s(key, n, &text, 1, all + used + n, n);
			used += 2 * n;
		}
	}
	part.size = used;
	blake2s(NULL, 0, &part, 1, digest, sizeof(digest));
	cr_expect_str_eq(hex(digest, 32),
		"6a411f08ce25adcdfb02aba641451cec53c598b24f4fc787fbdc88797f4c1dfe");
}

Test(blake2s, parts_join)
{
	unsigned char text[200], one[16], many[16];
	struct blake2s_part whole = { text, sizeof(text) };

	count_up(text, sizeof(text));
	blake2s("key", 3, &whole, 1, one, sizeof(one));
	for (size_t cut = 0; cut <= sizeof(text); cut++) {
		struct blake2s_part parts[3] = { { text, cut / 2 },
			{ text + cut / 2, cut - cut / 2 }, { text + cut, sizeof(text) - cut } };

		blake2s("key", 3, parts, 3, many, sizeof(many));
		cr_assert(equal_secrets(one, many, sizeof(one)), "cut at %zu", cut);
	}
}

Test(blake2s, comparison)
{
	unsigned char a[32] = { 0 }, b[32] = { 0 };

	cr_expect(equal_secrets(a, b, sizeof(a)));
	for (size_t i = 0; i < 8 * sizeof(a); i++) {
		b[i / 8] = (unsigned char)(1u << i % 8);
		cr_assert_not(equal_secrets(a, b, sizeof(a)), "bit %zu", i);
		b[i / 8] = 0;
	}
}
