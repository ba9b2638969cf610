/* SPDX-License-Identifier: MIT */
/*
 * One AVL tree of segments in order of offset. Segments tile [0, size): each is a live block or a
 * gap, and no two gaps touch. A gap that is cut keeps its node for one of the parts, and merging
 * only removes nodes, so free never needs memory.
 *
 * Each node knows, for every power-of-two alignment up to 8 MiB, the largest block that fits a gap
 * of its subtree at that alignment. The lowest gap that fits is therefore found without trying one
 * that does not.
 */
#include "arena.h"

#include <errno.h>
#include <inttypes.h>

#include "src/base/mem.h"
#include "src/base/status.h"

enum { CLASSES = 18 }; /* ARENA_ALIGN << 0 .. 17 */

struct node {
	uint64_t offset, size, owner;
	struct node *child[2];
	bool live;
	unsigned char height;	/* 1 for a leaf */
	uint32_t best[CLASSES]; /* in units of ARENA_ALIGN, saturated at UINT32_MAX */
};

struct arena {
	uint64_t size, used, blocks;
	struct node *root; /* NULL: of size 0 */
};

/* Bytes of a gap that remain behind the first multiple of align in it that is not below `from`. */
static uint64_t usable_bytes(const struct node *gap, uint64_t align, uint64_t from)
{
	uint64_t skip = from > gap->offset ? from - gap->offset : 0;
	uint64_t pad = (0 - (gap->offset + skip)) & (align - 1);

	return gap->size > skip && gap->size - skip > pad ? gap->size - skip - pad : 0;
}

static uint32_t units(uint64_t bytes)
{
	return (uint32_t)MIN_OF(bytes / ARENA_ALIGN, UINT32_MAX);
}

/* The class of an alignment; those above the last share it, and their gaps are tried one by one. */
static unsigned class_of(uint64_t align)
{
	unsigned k = (unsigned)__builtin_ctzll(align / ARENA_ALIGN);

	return MIN_OF(k, CLASSES - 1);
}

static int height(const struct node *n)
{
	return n ? n->height : 0;
}

/* Recomputes what a node knows of its subtree. */
static void update_node(struct node *n)
{
	n->height = (unsigned char)(1 + MAX_OF(height(n->child[0]), height(n->child[1])));
	for (unsigned k = 0; k < CLASSES; k++)
		n->best[k] = n->live ? 0 : units(usable_bytes(n, (uint64_t)ARENA_ALIGN << k, 0));
	for (int side = 0; side < 2; side++) {
		const struct node *c = n->child[side];

		for (unsigned k = 0; c && k < CLASSES; k++)
			n->best[k] = MAX_OF(n->best[k], c->best[k]);
	}
}

/* Lifts the child on `side` above n. */
static struct node *rotate(struct node *n, int side)
{
	struct node *top = n->child[side];

	n->child[side] = top->child[!side];
	top->child[!side] = n;
	update_node(n);
	update_node(top);
	return top;
}

/* Subtrees in order, their heights at most 2 apart: the root of the two joined by n, again an
   AVL tree. */
static struct node *balance(struct node *n)
{
	int lean = height(n->child[1]) - height(n->child[0]);
	int side = lean > 0;
	struct node *c = n->child[side];

	if (lean >= -1 && lean <= 1) {
		update_node(n);
		return n;
	}
	if (height(c->child[!side]) > height(c->child[side]))
		n->child[side] = rotate(c, !side);
	return rotate(n, side);
}

static struct node *insert(struct node *root, struct node *n)
{
	int side;

	if (!root) {
		update_node(n);
		return n;
	}
	side = n->offset > root->offset;
	root->child[side] = insert(root->child[side], n);
	return balance(root);
}

static struct node *take_first(struct node *root, struct node **first)
{
	if (!root->child[0]) {
		*first = root;
		return root->child[1];
	}
	root->child[0] = take_first(root->child[0], first);
	return balance(root);
}

/* Takes out the node that begins at offset, which must exist. The caller frees it. */
static struct node *take_node(struct node *root, uint64_t offset)
{
	struct node *next;
	int side;

	if (offset != root->offset) {
		side = offset > root->offset;
		root->child[side] = take_node(root->child[side], offset);
		return balance(root);
	}
	if (!root->child[1])
		return root->child[0];
	root->child[1] = take_first(root->child[1], &next);
	next->child[0] = root->child[0];
	next->child[1] = root->child[1];
	return balance(next);
}

/* Updates the path to a node whose size or state has changed. */
static void refresh(struct node *root, uint64_t offset)
{
	if (offset != root->offset)
		refresh(root->child[offset > root->offset], offset);
	update_node(root);
}

static struct node *find_node(const struct arena *arena, uint64_t offset)
{
	struct node *n = arena->root;

	while (n && n->offset != offset)
		n = n->child[offset > n->offset];
	return n;
}

static struct node *find_before(const struct arena *arena, uint64_t offset)
{
	struct node *n = arena->root, *found = NULL;

	while (n) {
		if (n->offset < offset)
			found = n;
		n = n->child[n->offset < offset];
	}
	return found;
}

/* The lowest gap that fits. Turns back only where the class or the unit count is not exact, and
   once on the way to `from`. */
static struct node *find_gap(struct node *n, const struct arena_want *want)
{
	struct node *gap = NULL;

	if (!n || n->best[class_of(want->align)] < units(want->size))
		return NULL;
	if (n->offset > want->from)
		gap = find_gap(n->child[0], want);
	if (gap)
		return gap;
	if (!n->live && usable_bytes(n, want->align, want->from) >= want->size)
		return n;
	return find_gap(n->child[1], want);
}

static struct node *new_segment(uint64_t offset, uint64_t size)
{
	struct node *n = mem_calloc(1, sizeof(*n));

	if (n) {
		n->offset = offset;
		n->size = size;
	}
	return n;
}

static void make_live(struct node *n, uint64_t owner)
{
	n->live = true;
	n->owner = owner;
}

int arena_create(uint64_t size, struct arena **arena)
{
	struct arena *made = mem_calloc(1, sizeof(*made));

	if (!made)
		return -ENOMEM;
	made->size = size - size % ARENA_ALIGN;
	if (made->size) {
		made->root = new_segment(0, made->size);
		if (!made->root) {
			mem_free(made);
			return -ENOMEM;
		}
		update_node(made->root);
	}
	*arena = made;
	return 0;
}

static void destroy_tree(struct node *n)
{
	if (!n)
		return;
	destroy_tree(n->child[0]);
	destroy_tree(n->child[1]);
	mem_free(n);
}

void arena_destroy(struct arena *arena)
{
	if (!arena)
		return;
	destroy_tree(arena->root);
	mem_free(arena);
}

/*
 * Cuts a live block out of a gap, at `at`. The part before the block keeps the gap's node; the
 * part behind becomes a gap of its own. All memory is allocated before anything changes.
 */
static int cut(struct arena *arena, struct node *gap, uint64_t at, const struct arena_want *want)
{
	uint64_t size = want->size, lead = at - gap->offset;
	uint64_t tail = gap->size - lead - size;
	struct node *block = lead ? new_segment(at, size) : NULL;
	struct node *rest = tail ? new_segment(at + size, tail) : NULL;

	if ((lead && !block) || (tail && !rest)) {
		mem_free(block);
		mem_free(rest);
		return -ENOMEM;
	}
	make_live(lead ? block : gap, want->owner);
	gap->size = lead ? lead : size;
	refresh(arena->root, gap->offset);
	if (block)
		arena->root = insert(arena->root, block);
	if (rest)
		arena->root = insert(arena->root, rest);
	return 0;
}

int arena_take(struct arena *arena, const struct arena_want *want, uint64_t *offset)
{
	struct arena_want w = *want;
	struct node *gap;
	uint64_t at;
	int rc;

	if (!is_power_of_two(w.align))
		return -EINVAL;
	if (w.size > arena->size)
		return -ENOSPC;
	w.align = MAX_OF(w.align, ARENA_ALIGN);
	w.size = w.size ? align_up(w.size, ARENA_ALIGN) : ARENA_ALIGN;
	gap = find_gap(arena->root, &w);
	if (!gap)
		return -ENOSPC;
	at = gap->offset + (gap->size - usable_bytes(gap, w.align, w.from));
	rc = cut(arena, gap, at, &w);
	if (rc)
		return rc;
	arena->used += w.size;
	arena->blocks++;
	*offset = at;
	return 0;
}

int arena_alloc(struct arena *arena, uint64_t size, uint64_t align, uint64_t *offset)
{
	return arena_take(arena, &(struct arena_want){ .size = size, .align = align }, offset);
}

static void drop(struct arena *arena, struct node *n)
{
	arena->root = take_node(arena->root, n->offset);
	mem_free(n);
}

int arena_free(struct arena *arena, uint64_t offset)
{
	struct node *n = find_node(arena, offset);
	struct node *before, *behind;

	if (!n || !n->live)
		return -EINVAL;
	arena->used -= n->size;
	arena->blocks--;
	n->live = false;
	behind = find_node(arena, offset + n->size);
	if (behind && !behind->live) {
		n->size += behind->size;
		drop(arena, behind);
	}
	before = find_before(arena, offset);
	if (before && !before->live) {
		before->size += n->size;
		drop(arena, n);
		n = before;
	}
	refresh(arena->root, n->offset);
	return 0;
}

int arena_size(const struct arena *arena, uint64_t offset, uint64_t *size)
{
	const struct node *n = find_node(arena, offset);

	if (!n || !n->live)
		return -EINVAL;
	*size = n->size;
	return 0;
}

int arena_owner(const struct arena *arena, uint64_t offset, uint64_t *owner)
{
	const struct node *n = find_node(arena, offset);

	if (!n || !n->live)
		return -EINVAL;
	*owner = n->owner;
	return 0;
}

/* The first segment that begins at or above `from`; NULL: none. */
static const struct node *find_from(const struct arena *arena, uint64_t from)
{
	const struct node *n = arena->root, *found = NULL;

	while (n) {
		if (n->offset >= from)
			found = n;
		n = n->child[n->offset < from];
	}
	return found;
}

int arena_next(const struct arena *arena, uint64_t from, uint64_t *offset, uint64_t *owner)
{
	const struct node *n = find_from(arena, from);

	/* No two gaps touch, so it is this segment or the next. */
	if (n && !n->live)
		n = find_from(arena, n->offset + n->size);
	if (!n)
		return -ENOENT;
	*offset = n->offset;
	*owner = n->owner;
	return 0;
}

uint64_t arena_used(const struct arena *arena)
{
	return arena->used;
}

uint64_t arena_blocks(const struct arena *arena)
{
	return arena->blocks;
}

uint64_t arena_high(const struct arena *arena)
{
	const struct node *n = arena->root;

	if (!n)
		return 0;
	while (n->child[1])
		n = n->child[1];
	return n->live ? n->offset + n->size : n->offset;
}

/* What a walk in order has seen so far. */
struct walk {
	uint64_t end, used, blocks;
	bool gap; /* the segment before was one */
};

static int check_segment(const struct node *n, struct walk *w)
{
	if (n->offset != w->end)
		return fail(-EIO,
			"arena: a segment begins at %" PRIu64 " where %" PRIu64 " was due",
			n->offset, w->end);
	if (!n->size || n->size % ARENA_ALIGN || n->size > UINT64_MAX - n->offset)
		return fail(-EIO, "arena: the segment at %" PRIu64 " has %" PRIu64 " bytes",
			n->offset, n->size);
	if (!n->live && w->gap)
		return fail(-EIO, "arena: two gaps touch at %" PRIu64, n->offset);
	w->end += n->size;
	w->used += n->live ? n->size : 0;
	w->blocks += n->live;
	w->gap = !n->live;
	return 0;
}

static int check_node(const struct node *n)
{
	int lean = height(n->child[1]) - height(n->child[0]);
	struct node fresh = *n;

	if (lean < -1 || lean > 1)
		return fail(-EIO, "arena: the tree leans by %d at %" PRIu64, lean, n->offset);
	update_node(&fresh);
	if (fresh.height != n->height)
		return fail(-EIO, "arena: wrong height at %" PRIu64, n->offset);
	for (unsigned k = 0; k < CLASSES; k++) {
		if (fresh.best[k] != n->best[k])
			return fail(-EIO,
				"arena: at %" PRIu64 " class %u says %" PRIu32 " where %" PRIu32
				" holds",
				n->offset, k, n->best[k], fresh.best[k]);
	}
	return 0;
}

static int check_tree(const struct node *n, struct walk *w)
{
	int rc;

	if (!n)
		return 0;
	rc = check_tree(n->child[0], w);
	if (!rc)
		rc = check_segment(n, w);
	if (!rc)
		rc = check_tree(n->child[1], w);
	return rc ? rc : check_node(n);
}

int arena_check(const struct arena *arena)
{
	struct walk w = { 0 };
	int rc = check_tree(arena->root, &w);

	if (rc)
		return rc;
	if (w.end != arena->size)
		return fail(
			-EIO, "arena: segments end at %" PRIu64 " of %" PRIu64, w.end, arena->size);
	if (w.used != arena->used || w.blocks != arena->blocks)
		return fail(-EIO,
			"arena: %" PRIu64 " bytes in %" PRIu64 " blocks, counted %" PRIu64
			" in %" PRIu64,
			w.used, w.blocks, arena->used, arena->blocks);
	return 0;
}
