/* SPDX-License-Identifier: MIT */
/* A case of a world that is closed, on three virtual devices. 0, or a failure that ranks_message() tells. */
#ifndef TESTS_XLA_CLOSES_H
#define TESTS_XLA_CLOSES_H

int closed_as_a_call_fails(void);

#endif
