/* Numbers that are looked at rather than read: bars and sparklines, in block characters where the
 * terminal has them. Pure but for the environment; any thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GRAPH_CELLS_MAX 60u
#define GRAPH_MAX       (GRAPH_CELLS_MAX * 3 + 1) /* bytes: a block character has three */
#define GRAPH_FULL      10000u                    /* basis points of a full bar */

/* The locale of the environment is one of UTF-8. */
bool graph_utf8(void);
/* A bar of `cells` characters. */
void graph_bar(uint32_t basis_points, unsigned cells, bool utf8, char out[GRAPH_MAX]);
/* One character for each of the last GRAPH_CELLS_MAX values; the scale is 0 to GRAPH_FULL. */
void graph_spark(const uint32_t *basis_points, size_t count, bool utf8, char out[GRAPH_MAX]);
