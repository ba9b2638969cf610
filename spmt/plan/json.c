/* SPDX-License-Identifier: MIT */
#include "json.h"

#include <errno.h>
#include <string.h>

#include "src/base/mem.h"
#include "src/base/status.h"

#define JSON_DEPTH 32
#define JSON_MEMBERS 256 /* of an object: each name is looked for among those before */

struct json_reader {
	struct json *json;
	const char *at, *end, *what;
	char *strings; /* where the next one goes; together they are shorter than the text */
	unsigned line;
	int depth;
};

static int json_wrong(const struct json_reader *r, const char *why)
{
	return fail_call(-EINVAL, r->what, "line %u: %s", r->line, why);
}

static void json_blanks(struct json_reader *r)
{
	for (; r->at < r->end && *r->at && strchr(" \t\r\n", *r->at); r->at++)
		r->line += *r->at == '\n';
}

/* 0: the end */
static char json_peek(const struct json_reader *r)
{
	return r->at < r->end ? *r->at : '\0';
}

/* There is room: a value is the first, or behind a bracket or comma of its own, which json_room has counted. */
static struct json_node *json_node(struct json_reader *r, enum json_kind kind, uint32_t *index)
{
	struct json *j = r->json;

	*index = j->n++;
	j->nodes[*index] = (struct json_node){ .kind = kind, .line = r->line };
	return &j->nodes[*index];
}

/* ---- strings and numbers ------------------------------------------------------------------------ */

static int hex_of(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
		return (c | 0x20) - 'a' + 10;
	return -1;
}

/* Four digits. */
static int json_hex(struct json_reader *r, uint32_t *x)
{
	*x = 0;
	if (r->end - r->at < 4)
		return json_wrong(r, "a string ends in \\u");
	for (int i = 0; i < 4; i++) {
		int digit = hex_of(r->at[i]);

		if (digit < 0)
			return json_wrong(r, "\\u is followed by four hexadecimal digits");
		*x = *x * 16 + (uint32_t)digit;
	}
	r->at += 4;
	return 0;
}

/* In UTF-8, as the text has it (RFC 3629, 3); never longer than the escape. No control is, as sentences that quote it reach terminals. */
static void json_put(char **out, uint32_t x)
{
	if (x < 0xa0) {
		*(*out)++ = x >= 0x20 && x < 0x7f ? (char)x : '?';
		return;
	}
	if (x >= 0x10000)
		*(*out)++ = (char)(0xf0 | x >> 18);
	if (x >= 0x800)
		*(*out)++ = (char)(x < 0x10000 ? 0xe0 | x >> 12 : 0x80 | (x >> 12 & 0x3f));
	*(*out)++ = (char)(x < 0x800 ? 0xc0 | x >> 6 : 0x80 | (x >> 6 & 0x3f));
	*(*out)++ = (char)(0x80 | (x & 0x3f));
}

/* Behind \u: a character, or the first half of one, whose other half follows. */
static int json_unicode(struct json_reader *r, char **out)
{
	uint32_t x, low = 0;
	int rc = json_hex(r, &x);

	if (rc)
		return rc;
	if (x >> 10 == 0xd800 >> 10 && r->end - r->at >= 2 && r->at[0] == '\\' && r->at[1] == 'u') {
		r->at += 2;
		rc = json_hex(r, &low);
		if (!rc && low >> 10 == 0xdc00 >> 10)
			x = 0x10000 + ((x & 0x3ff) << 10) + (low & 0x3ff);
	}
	if (!rc && x >> 11 == 0xd800 >> 11)
		return json_wrong(r, "a string has half a character of \\u");
	if (!rc)
		json_put(out, x);
	return rc;
}

static int json_escape(struct json_reader *r, char **out)
{
	static const char from[] = "\"\\/bfnrt",
			  to[] = "\"\\/?????"; /* no text is shown with controls */
	char which = json_peek(r);
	const char *p = which ? strchr(from, which) : NULL;

	r->at += r->at < r->end;
	if (which == 'u')
		return json_unicode(r, out);
	if (!p)
		return json_wrong(r, "a string has an escape that JSON does not have");
	*(*out)++ = to[p - from];
	return 0;
}

/* The character that begins there with a byte above 0x7f, of *n bytes (RFC 3629, 4); 0: none does. */
static uint32_t json_character(const char *at, const char *end, int *n)
{
	static const uint32_t least[] = { [2] = 0x80, [3] = 0x800, [4] = 0x10000 };
	unsigned char c = (unsigned char)*at;
	uint32_t x;

	*n = c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
	if (c < 0xc0 || c >= 0xf8 || end - at < *n)
		return 0;
	x = c & 0x7fu >> *n;
	for (int i = 1; i < *n; i++) {
		if (((unsigned char)at[i] & 0xc0) != 0x80)
			return 0;
		x = x << 6 | ((unsigned char)at[i] & 0x3fu);
	}
	return x < least[*n] || x >> 11 == 0xd800 >> 11 || x > 0x10ffff ? 0 : x;
}

/* A character as it stands there. No control is shown, nor a byte that begins none. */
static void json_raw(struct json_reader *r, char **out)
{
	const char *at = r->at - 1;
	uint32_t x = (unsigned char)*at;
	int n = 1;

	if (x >= 0x80)
		x = json_character(at, r->end, &n);
	if (x)
		r->at = at + n;
	json_put(out, x);
}

static int json_string(struct json_reader *r, const char **text)
{
	char *out = r->strings;
	int rc = 0;

	if (json_peek(r) != '"')
		return json_wrong(r, "a string is expected");
	*text = out;
	r->at++;
	while (!rc) {
		if (r->at == r->end || (unsigned char)*r->at < 0x20)
			return json_wrong(r, "a string does not end in its line");
		if (*r->at++ == '"')
			break;
		if (r->at[-1] == '\\')
			rc = json_escape(r, &out);
		else
			json_raw(r, &out);
	}
	*out = '\0';
	r->strings = out + 1;
	return rc;
}

static bool json_digits(struct json_reader *r, uint64_t *number, bool *fits)
{
	const char *begin = r->at;

	for (; json_peek(r) >= '0' && json_peek(r) <= '9'; r->at++)
		if (__builtin_mul_overflow(*number, 10u, number) ||
			__builtin_add_overflow(*number, (uint64_t)(*r->at - '0'), number))
			*fits = false;
	return r->at > begin;
}

static int json_number(struct json_reader *r, struct json_node *node)
{
	bool below = json_peek(r) == '-', fits = true;
	uint64_t rest = 0;
	bool whole = true;

	r->at += below;
	if (r->end - r->at > 1 && *r->at == '0' && r->at[1] >= '0' && r->at[1] <= '9')
		return json_wrong(r, "a number begins with 0");
	if (!json_digits(r, &node->number, &fits))
		return json_wrong(r, "a value is expected");
	if (json_peek(r) == '.') {
		r->at++;
		whole = false;
		if (!json_digits(r, &rest, &(bool){ true }))
			return json_wrong(r, "a number ends in its point");
	}
	if ((json_peek(r) | 0x20) == 'e') {
		r->at++;
		whole = false;
		r->at += json_peek(r) == '+' || json_peek(r) == '-';
		if (!json_digits(r, &rest, &(bool){ true }))
			return json_wrong(r, "a number ends in its exponent");
	}
	node->integer = whole && fits && (!below || !node->number);
	return 0;
}

/* ---- values ----------------------------------------------------------------------------------- */

static int json_word(struct json_reader *r, uint32_t *index)
{
	static const struct {
		const char *word;
		enum json_kind kind;
		uint64_t number;
	} words[] = { { "true", JSON_BOOL, 1 }, { "false", JSON_BOOL, 0 },
		{ "null", JSON_NULL, 0 } };

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		size_t n = strlen(words[i].word);

		if ((size_t)(r->end - r->at) >= n && !memcmp(r->at, words[i].word, n)) {
			json_node(r, words[i].kind, index)->number = words[i].number;
			r->at += n;
			return 0;
		}
	}
	return json_wrong(r, "a value is expected");
}

static int json_value(struct json_reader *r, uint32_t *index);

static int json_key(struct json_reader *r, const char **key)
{
	int rc = json_string(r, key);

	json_blanks(r);
	if (!rc && json_peek(r) != ':')
		return json_wrong(r, "a name is followed by a colon");
	r->at++;
	json_blanks(r);
	return rc;
}

int json_quoted(const char *text)
{
	int n = (int)strnlen(text, 32);

	while (((unsigned char)text[n] & 0xc0) == 0x80)
		n--;
	return n;
}

/* Readers differ in which of two they take. */
static int json_name_new(struct json_reader *r, const struct json_node *object, const char *key)
{
	const struct json *j = r->json;

	if (object->items == JSON_MEMBERS)
		return json_wrong(r, "an object has more than 256 members");
	for (const struct json_node *m = json_first(j, object); m; m = json_next(j, m))
		if (!strcmp(m->key, key))
			return fail_call(-EINVAL, r->what, "line %u: %.*s is there twice", r->line,
				json_quoted(key), key);
	return 0;
}

/* Of an array or object, behind its first bracket. */
static int json_items(struct json_reader *r, uint32_t of, char close)
{
	uint32_t last = 0, item;
	const char *key = NULL;
	int rc;

	json_blanks(r);
	for (bool more = json_peek(r) != close; more;) {
		rc = close == '}' ? json_key(r, &key) : 0;
		if (!rc && key)
			rc = json_name_new(r, &r->json->nodes[of], key);
		if (rc)
			return rc;
		rc = json_value(r, &item);
		if (rc)
			return rc;
		r->json->nodes[item].key = key;
		if (last)
			r->json->nodes[last].next = item;
		else
			r->json->nodes[of].first = item;
		r->json->nodes[of].items++;
		last = item;
		json_blanks(r);
		more = json_peek(r) == ',';
		if (!more && json_peek(r) != close)
			return json_wrong(r, "a comma or a closing bracket is expected");
		r->at += more;
		json_blanks(r);
	}
	r->at++;
	return 0;
}

static int json_value(struct json_reader *r, uint32_t *index)
{
	char c = json_peek(r);
	int rc;

	if (c == '{' || c == '[') {
		if (++r->depth > JSON_DEPTH)
			return json_wrong(r, "brackets are nested too deep");
		json_node(r, c == '{' ? JSON_OBJECT : JSON_ARRAY, index);
		r->at++;
		rc = json_items(r, *index, c == '{' ? '}' : ']');
		r->depth--;
		return rc;
	}
	if (c == '"')
		return json_string(r, &json_node(r, JSON_STRING, index)->text);
	if (c == '-' || (c >= '0' && c <= '9'))
		return json_number(r, json_node(r, JSON_NUMBER, index));
	return json_word(r, index);
}

/* Nodes for all values that the text may have: at once, as a copy of them would take as much again. */
static int json_room(struct json_reader *r)
{
	size_t n = 1;

	for (const char *p = r->at; p < r->end; p++)
		n += *p == ',' || *p == '[' || *p == '{';
	if (n > JSON_VALUES)
		return fail_call(-EINVAL, r->what, "the text has more than %u values", JSON_VALUES);
	r->json->nodes = mem_calloc(1 + n, sizeof(*r->json->nodes));
	r->json->n = 1;
	return r->json->nodes ? 0 : fail_call(-ENOMEM, r->what, "no memory for %zu values", n);
}

int json_open(struct json *json, const char *what, const char *text, size_t size)
{
	struct json_reader r = { .json = json, .at = text, .what = what, .line = 1 };
	uint32_t index;
	int rc;

	*json = (struct json){ .n = 0 };
	json->strings = size < SIZE_MAX / 2 ? mem_calloc(1, size + 1) : NULL;
	if (!json->strings)
		return fail_call(-ENOMEM, what, "no memory for %zu bytes of text", size);
	r.strings = json->strings;
	r.end = text + size;
	rc = json_room(&r);
	if (size >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) /* as some editors begin UTF-8 */
		r.at += 3;
	json_blanks(&r);
	if (!rc)
		rc = json_value(&r, &index);
	json_blanks(&r);
	if (!rc && r.at < r.end)
		rc = json_wrong(&r, "there is more text behind the end");
	return rc;
}

void json_close(struct json *json)
{
	mem_free(json->nodes);
	mem_free(json->strings);
	*json = (struct json){ .n = 0 };
}

const struct json_node *json_member(
	const struct json *j, const struct json_node *object, const char *key)
{
	const struct json_node *m = NULL;

	if (object && object->kind == JSON_OBJECT)
		for (m = json_first(j, object); m && strcmp(m->key, key);)
			m = json_next(j, m);
	return m;
}

const struct json_node *json_item(const struct json *j, const struct json_node *array, uint64_t nth)
{
	const struct json_node *item = NULL;

	if (array && array->kind == JSON_ARRAY && nth < array->items)
		for (item = json_first(j, array); nth; nth--)
			item = json_next(j, item);
	return item;
}
