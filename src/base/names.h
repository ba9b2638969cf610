/* SPDX-License-Identifier: MIT */
/* Names for messages of what is a number in the program. */
#ifndef SPMT_NAMES_H
#define SPMT_NAMES_H

#include "include/spmt.h"

/* A call as its prototype writes it, for messages: its name, what it calls the symmetric side, and what the other side. */
struct call {
	const char *name, *remote, *local;
};

/* The enumerator without its SPMT_TYPE_, .., in small letters: "f32", "xor", "fetch_add". Of what is none: "unknown". */
const char *type_name(uint64_t type);
const char *op_name(uint64_t op);
const char *amo_name(uint64_t amo);
/* "==", .. */
const char *cmp_name(uint64_t cmp);

/* In bytes; 0: no such type. */
size_t type_size(enum spmt_type type);

/* A word's bits as its type reads them: numbers with a sign and floats in decimal. */
struct word_text {
	char text[32];
};
struct word_text word_text(uint64_t type, uint64_t bits);

#endif
