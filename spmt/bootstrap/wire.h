/* SPDX-License-Identifier: MIT */
/*
 * The protocol between the processes of a world: frames of a header, a fixed part and a tail, in
 * the byte order of the machines that we run on. Everything here is pure and trusts no length.
 * hub: CHALLENGE; process: HELLO; hub: WELCOME, then PRESENT for every rank that is there. From
 * then on: ADD and its VERDICT; PRESENT and ABSENT as ranks come and go; COMPLETE with the
 * control memory; EXCHANGE, passed on as RELAY; WORD, BREAK, BYE and, over TCP, PING, either way. To a hub that follows one that has
 * died: RETURN after WELCOME, then as after COMPLETE.
 */
#ifndef SPMT_BOOTSTRAP_WIRE_H
#define SPMT_BOOTSTRAP_WIRE_H

#include "bootstrap.h"
#include "src/base/status.h"

#define WIRE_MAGIC 0x746f6f622d6d7073ull /* "spm-boot" */
#define WIRE_VERSION 7u
#define WIRE_NONCE 16
#define WIRE_PROOF 32
#define WIRE_NAME 64	      /* bytes of a socket's name */
#define WIRE_DATA (1u << 20)  /* most bytes of an exchange */
#define WIRE_WORDS (1u << 25) /* .. and of what all ranks bring to a meeting */

/* clang-format off */
enum wire_type {
	WIRE_CHALLENGE = 1, WIRE_HELLO, WIRE_WELCOME, WIRE_ADD, WIRE_VERDICT, WIRE_PRESENT,
	WIRE_ABSENT, WIRE_COMPLETE, WIRE_EXCHANGE, WIRE_RELAY, WIRE_BREAK, WIRE_BYE, WIRE_WORD,
	WIRE_PING, WIRE_RETURN,
	WIRE_TYPES
};
/* clang-format on */

struct wire_header {
	uint32_t length; /* of what follows */
	uint16_t type;
	uint16_t fds; /* descriptors that came with the first byte: 0 or 1 */
};

struct wire_rank {
	uint32_t rank, member; /* PRESENT: whose; ADD, ABSENT: 0 */
	uint32_t remote;       /* PRESENT: 1: not on the hub's node */
	uint16_t port, zero;   /* ADD, PRESENT: where its process would be the hub; 0: nowhere */
	struct place_address place; /* PRESENT: of its node, as the hub sees it */
};
struct wire_return {
	uint32_t process, zero; /* of the world's */
};
struct wire_verdict {
	uint32_t rank;
	int32_t code;
};
struct wire_complete {
	uint32_t processes, remote; /* remote 1: one of them is not on this node */
};
struct wire_data {
	uint32_t round, process; /* RELAY: whose; EXCHANGE: 0 */
};
struct wire_break {
	int32_t code;
	uint32_t call; /* as in struct cause */
};

struct wire_challenge {
	uint64_t magic;
	uint32_t version, zero;
	unsigned char nonce[WIRE_NONCE];
};

struct wire_hello {
	uint64_t magic;
	uint32_t version, nranks;
	uint64_t blob_size, control_size;
	unsigned char nonce[WIRE_NONCE];
	unsigned char proof[WIRE_PROOF];
};

struct wire_welcome {
	int32_t code; /* 0, or SPMT_ERR_MISMATCH: the rest says with what */
	uint32_t member, nranks, zero;
	uint64_t blob_size, control_size;
	unsigned char proof[WIRE_PROOF];
};

struct wire_message {
	enum wire_type type;
	bool has_fd;
	union {
		struct wire_challenge challenge;
		struct wire_hello hello;
		struct wire_welcome welcome;
		struct wire_rank rank;
		struct wire_verdict verdict;
		struct wire_complete complete;
		struct wire_return back;
		struct wire_data data;
		struct wire_break broken;
		struct bootstrap_word word;
	} u;
	const unsigned char *tail; /* in the bytes parsed */
	size_t tail_size;
};

/* What a receiver accepts at this moment. */
struct wire_rules {
	unsigned types; /* set of 1u << type */
	int nranks;
	size_t blob_size;
};

/* Bytes of the frame that begins at `bytes`, 0 while n is below a header, -EPROTO if no such frame may come. */
int64_t wire_size(const struct wire_rules *rules, const void *bytes, size_t n);
/* Bytes taken; 0: the frame is not all there; -EPROTO. */
int64_t wire_parse(
	const struct wire_rules *rules, const void *bytes, size_t n, struct wire_message *message);
/* Of a WIRE_BREAK. */
void wire_cause(const struct wire_message *message, struct cause *cause);
/* Bytes of a type's fixed part. */
size_t wire_fixed(enum wire_type type);

/* What a hello and its answer have to prove: that the secret is known, to these two nonces. */
void wire_prove_hello(const struct uid *uid, const struct wire_challenge *challenge,
	const struct wire_hello *hello, unsigned char proof[WIRE_PROOF]);
void wire_prove_welcome(const struct uid *uid, const struct wire_hello *hello,
	const struct wire_welcome *welcome, unsigned char proof[WIRE_PROOF]);
/* Of the socket of the process that brings `rank`, -1: of the rendezvous. Each has a row of names, by number, as others may hold one
   that they have seen in use. None tells anything of the secret, or of another. */
void wire_name(const struct uid *uid, int rank, unsigned number, char name[WIRE_NAME]);
/* Appends ", "-separated ranks for which test says yes; "..": there was no room. */
void say_ranks(char *sentence, size_t size, int nranks, bool (*test)(const void *ctx, int rank),
	const void *ctx);

#endif
