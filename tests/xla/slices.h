/* SPDX-License-Identifier: MIT */
/* Cases of put and get, the handlers of slices, on eight virtual devices. 0, or a failure that ranks_message() tells. */
#ifndef TESTS_XLA_SLICES_H
#define TESTS_XLA_SLICES_H

int slices_move(void);
int slices_wrong(void);

#endif
