/* SPDX-License-Identifier: MIT */
/* Reads recordings of machines. Nothing in them is trusted. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fields.h"
#include "src/base/mem.h"
#include "src/base/status.h"

enum { LINE = 512, WORDS = 32, FIELDS = 12 };

/* ---- values */

/* Decimal digits alone, below TOPO_UNSET. Ends at the first other character. */
static int read_digits(const char **at, uint64_t *value)
{
	const char *s = *at;
	uint64_t v = 0;

	for (; *s >= '0' && *s <= '9'; s++) {
		if (v > (UINT64_MAX / 2 - 9) / 10)
			return -EINVAL;
		v = v * 10 + (uint64_t)(*s - '0');
	}
	if (s == *at)
		return -EINVAL;
	*at = s;
	*value = v;
	return 0;
}

static int read_number(const char *word, uint64_t *value)
{
	return read_digits(&word, value) || *word ? -EINVAL : 0;
}

static int read_size(const char *word, uint64_t *value)
{
	const char *suffix;
	uint64_t v;
	int shift = 0;

	if (read_digits(&word, &v))
		return -EINVAL;
	suffix = *word ? strchr(topo_suffixes, *word) : NULL;
	if (suffix) {
		shift = 10 * (int)(suffix - topo_suffixes + 1);
		word++;
	}
	if (*word || v > UINT64_MAX / 2 >> shift)
		return -EINVAL;
	*value = v << shift;
	return 0;
}

_Static_assert(TOPO_MAX_RANKS == TOPO_MAX_DEVICES, "ranges of both are read alike");

static int read_range(const char *word, int range[2])
{
	uint64_t v[2];

	if (read_digits(&word, &v[0]))
		return -EINVAL;
	v[1] = v[0];
	if (*word == '-' && (word++, read_digits(&word, &v[1])))
		return -EINVAL;
	if (*word || v[1] < v[0] || v[1] >= TOPO_MAX_DEVICES)
		return -EINVAL;
	range[0] = (int)v[0];
	range[1] = (int)v[1];
	return 0;
}

static int hex(char c)
{
	const char *digits = "0123456789abcdef", *at = c ? strchr(digits, c) : NULL;

	return at ? (int)(at - digits) : -1;
}

static int read_uuid(const char *word, unsigned char uuid[16])
{
	if (strlen(word) != 32)
		return -EINVAL;
	for (size_t i = 0; i < 16; i++) {
		int high = hex(word[2 * i]), low = hex(word[2 * i + 1]);

		if (high < 0 || low < 0)
			return -EINVAL;
		uuid[i] = (unsigned char)(high << 4 | low);
	}
	return 0;
}

static int read_link(const char *word, uint64_t *link)
{
	for (int i = TOPO_LINK_UNKNOWN; i <= TOPO_LINK_NVLINK; i++) {
		if (!strcmp(word, topo_link_name((enum topo_link)i))) {
			*link = (uint64_t)i;
			return 0;
		}
	}
	return -EINVAL;
}

static int read_text(const char *word, char *text, size_t size)
{
	size_t n = strlen(word);

	if (!n || n >= size)
		return -EINVAL;
	memcpy(text, word, n + 1);
	return 0;
}

static int read_yes(const char *word, uint64_t *value)
{
	*value = !strcmp(word, "yes");
	return *value || !strcmp(word, "no") ? 0 : -EINVAL;
}

static int read_value(const struct topo_field *f, const char *word, void *item)
{
	void *member = (char *)item + f->offset;

	switch (f->kind) {
	case TOPO_TEXT:
		return read_text(word, member, f->size);
	case TOPO_NUMBER:
		return read_number(word, member);
	case TOPO_SIZE:
		return read_size(word, member);
	case TOPO_UUID:
		return read_uuid(word, member);
	case TOPO_YES:
		return read_yes(word, member);
	case TOPO_LINK:
		return read_link(word, member);
	case TOPO_RANGE:
		return read_range(word, member);
	}
	return -EINVAL;
}

/* ---- lines */

struct parser {
	const char *name;
	struct topo *topo;
	int line, first; /* first: position of the current host's device 0 */
	bool begun;	 /* the version has been seen */
	char text[LINE], *word[WORDS];
	int nwords;
};

static int bad(const struct parser *p, int code, const char *fmt, ...) PRINTF(3, 4);
static int bad(const struct parser *p, int code, const char *fmt, ...)
{
	char what[256];
	va_list args;

	va_start(args, fmt);
	vsnprintf(what, sizeof(what), fmt, args);
	va_end(args);
	return fail(code, "%.200s:%d: %s", p->name, p->line, what);
}

/* The words of the current line into an item, which is zeroed. */
static int read_item(struct parser *p, const struct topo_field *fields, size_t n, void *item)
{
	bool seen[FIELDS] = { false };
	size_t i;

	for (i = 0; i < n; i++) {
		if (topo_is_number(fields[i].kind))
			memcpy((char *)item + fields[i].offset, &fields[i].def, sizeof(uint64_t));
	}
	if (p->nwords % 2)
		return bad(p, -EINVAL, "%.40s has no value", p->word[p->nwords - 1]);
	for (int w = 0; w < p->nwords; w += 2) {
		for (i = 0; i < n && strcmp(p->word[w], fields[i].key); i++)
			;
		if (i == n)
			return bad(p, -EINVAL, "a %s line has no %.40s", fields[0].key, p->word[w]);
		if (seen[i])
			return bad(p, -EINVAL, "%s is given twice", fields[i].key);
		seen[i] = true;
		if (read_value(&fields[i], p->word[w + 1], item))
			return bad(p, -EINVAL, "%s: \"%.80s\" is not understood, or too much",
				fields[i].key, p->word[w + 1]);
	}
	for (i = 0; i < n; i++) {
		if (fields[i].required && !seen[i])
			return bad(p, -EINVAL, "a %s line needs %s", fields[0].key, fields[i].key);
	}
	return 0;
}

static int check_host(struct parser *p, void *item)
{
	(void)item;
	p->first = p->topo->ndevices;
	return 0;
}

static int check_numa(struct parser *p, void *item)
{
	((struct topo_numa *)item)->host = p->topo->nhosts - 1;
	return 0;
}

static int check_nic(struct parser *p, void *item)
{
	((struct topo_nic *)item)->host = p->topo->nhosts - 1;
	return 0;
}

static int check_device(struct parser *p, void *item)
{
	struct topo_device *d = item;
	int due = p->topo->ndevices - 1 - p->first;

	if (d->index != (uint64_t)due)
		return bad(p, -EINVAL, "device %" PRIu64 " where %d is due", d->index, due);
	if (d->ordinal == TOPO_UNSET)
		d->ordinal = d->index;
	if (d->ordinal > INT32_MAX)
		return bad(p, -EINVAL, "ordinal %" PRIu64 " is too large", d->ordinal);
	d->host = p->topo->nhosts - 1;
	return 0;
}

static int check_peers(struct parser *p, void *item)
{
	struct topo_peers *peers = item;
	int n = p->topo->ndevices - p->first, last = MAX_OF(peers->from[1], peers->to[1]);

	if (last >= n)
		return bad(p, -EINVAL, "device %d where the host has %d so far", last, n);
	for (int i = 0; i < 2; i++) {
		peers->from[i] += p->first;
		peers->to[i] += p->first;
	}
	return 0;
}

/* Items that are lists of a topo: read into a new element, then checked. */
static const struct item {
	const struct topo_field *fields;
	size_t nfields, list, count, each;
	int max;
	int (*check)(struct parser *p, void *item);
} items[] = {
#define ITEM(name, list, max, check)                                                 \
	{                                                                            \
		topo_##name##_fields, ARRAY_SIZE(topo_##name##_fields),              \
			offsetof(struct topo, list), offsetof(struct topo, n##list), \
			sizeof(*((struct topo *)NULL)->list), max, check             \
	}
	ITEM(host, hosts, TOPO_MAX_HOSTS, check_host),
	ITEM(numa, numas, TOPO_MAX_NUMAS, check_numa),
	ITEM(device, devices, TOPO_MAX_DEVICES, check_device),
	ITEM(nic, nics, TOPO_MAX_NICS, check_nic),
	ITEM(peers, peers, TOPO_MAX_PEERS, check_peers),
};

static int read_listed(struct parser *p, const struct item *item)
{
	char *topo = (char *)p->topo;
	int *n = (int *)(void *)(topo + item->count);
	void *element;
	int rc;

	if (*n >= item->max)
		return bad(p, -E2BIG, "more than %d lines of %s", item->max, item->fields[0].key);
	if (item != items && !p->topo->nhosts)
		return bad(p, -EINVAL, "%s before the first host", item->fields[0].key);
	element = topo_add(topo + item->list, n, item->each);
	if (!element)
		return bad(p, -ENOMEM, "no memory for one more %s", item->fields[0].key);
	rc = read_item(p, item->fields, item->nfields, element);
	return rc ? rc : item->check(p, element);
}

static int read_ranks(struct parser *p)
{
	struct topo_ranks r = { 0 };
	int rc = read_item(p, topo_ranks_fields, ARRAY_SIZE(topo_ranks_fields), &r);
	int n = r.ranks[1] - r.ranks[0], per = r.devices[1] - r.devices[0], first, have;

	if (rc)
		return rc;
	first = topo_host_devices(p->topo, r.on, &have);
	if (r.ranks[0] != p->topo->nranks)
		return bad(p, -EINVAL, "rank %d where %d is due", r.ranks[0], p->topo->nranks);
	if (r.devices[1] >= have)
		return bad(p, -EINVAL, "device %d where host %" PRIu64 " has %d", r.devices[1],
			r.on, have);
	if (per && per != n)
		return bad(p, -EINVAL, "%d ranks on %d devices", n + 1, per + 1);
	for (int i = 0; i <= n; i++) {
		struct topo_rank *rank = topo_add(&p->topo->ranks, &p->topo->nranks, sizeof(*rank));

		if (!rank)
			return bad(p, -ENOMEM, "no memory for one more rank");
		rank->device = first + r.devices[0] + (per ? i : 0);
		rank->process = r.process;
	}
	return 0;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

/* Cuts p->text into words, in place. */
static int split(struct parser *p)
{
	char *at = p->text;

	for (p->nwords = 0;;) {
		bool quoted;

		while (is_blank(*at))
			at++;
		if (!*at || (*at == '#' && !p->nwords))
			return 0;
		if (p->nwords == WORDS)
			return bad(p, -EINVAL, "more than %d words", WORDS);
		quoted = *at == '"';
		at += quoted;
		p->word[p->nwords++] = at;
		while (*at && *at != '"' && (quoted || !is_blank(*at)))
			at++;
		if ((*at == '"') != quoted || (quoted && at[1] && !is_blank(at[1])))
			return bad(p, -EINVAL, "a quote out of place");
		if (*at)
			*at++ = '\0';
	}
}

static int read_line(struct parser *p)
{
	uint64_t version;
	int rc = split(p);

	if (rc || !p->nwords)
		return rc;
	if (!p->begun) {
		if (p->nwords != 2 || strcmp(p->word[0], "spmt-topo"))
			return bad(
				p, -EINVAL, "not a recording: no \"spmt-topo %d\"", TOPO_VERSION);
		if (read_number(p->word[1], &version) || version != TOPO_VERSION)
			return bad(
				p, -EINVAL, "version %.40s, %d is known", p->word[1], TOPO_VERSION);
		p->begun = true;
		return 0;
	}
	if (!strcmp(p->word[0], topo_ranks_fields[0].key))
		return read_ranks(p);
	for (size_t i = 0; i < ARRAY_SIZE(items); i++) {
		if (!strcmp(p->word[0], items[i].fields[0].key))
			return read_listed(p, &items[i]);
	}
	return bad(p, -EINVAL, "a line of %.40s is not known", p->word[0]);
}

static int read_lines(struct parser *p, const char *text, size_t size)
{
	const char *end = text + size;
	int rc = 0;

	while (!rc && text < end) {
		const char *stop = memchr(text, '\n', (size_t)(end - text));
		size_t n = (size_t)((stop ? stop : end) - text);

		p->line++;
		if (n >= LINE)
			return bad(p, -EINVAL, "longer than %d bytes", LINE - 1);
		for (size_t i = 0; i < n; i++) {
			if ((unsigned char)text[i] < ' ' && text[i] != '\t')
				return bad(
					p, -EINVAL, "byte %d is no text", (unsigned char)text[i]);
		}
		memcpy(p->text, text, n);
		p->text[n] = '\0';
		rc = read_line(p);
		text += n + 1;
	}
	if (!rc && !p->begun)
		rc = bad(p, -EINVAL, "not a recording: it is empty");
	return rc;
}

int topo_parse(const char *text, size_t size, const char *name, struct topo **topo)
{
	struct parser p = { .name = name, .topo = mem_calloc(1, sizeof(**topo)) };
	int rc;

	if (!p.topo)
		return fail(-ENOMEM, "%.200s: no memory for a topology", name);
	rc = size <= TOPO_MAX_TEXT ? read_lines(&p, text, size) : bad(&p, -E2BIG, "above 8 MiB");
	if (rc) {
		topo_free(p.topo);
		return rc;
	}
	*topo = p.topo;
	return 0;
}

/* All of a file, up to a byte more than is accepted. */
static int read_all(int fd, char *text, size_t *size)
{
	*size = 0;
	while (*size <= TOPO_MAX_TEXT) {
		ssize_t n = read(fd, text + *size, TOPO_MAX_TEXT + 1 - *size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : 0;
		*size += (size_t)n;
	}
	return 0;
}

int topo_read(const char *path, struct topo **topo)
{
	char *text = mem_calloc(1, TOPO_MAX_TEXT + 1);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int rc = fd < 0 ? -errno : 0;
	size_t size;

	if (!text)
		rc = fail(-ENOMEM, "%.200s: no memory to read it", path);
	else if (rc || (rc = read_all(fd, text, &size)))
		rc = fail_errno(-rc, "%.200s", path);
	else
		rc = topo_parse(text, size, path, topo);
	if (fd >= 0)
		close(fd);
	mem_free(text);
	return rc;
}
