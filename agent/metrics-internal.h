/* What the readers of proc(5) share, for agent/metrics*.c only. */
#pragma once

#include "agent/metrics.h"

#include <stdbool.h>
#include <stdio.h>

/* The longest line that is understood: seventeen 64-bit counters and a name. */
#define METRICS_LINE_MAX 512

static inline void metrics_close(FILE **file)
{
    if (*file)
        (void)fclose(*file);
}
#define CLEANUP_METRICS_FILE CLEANUP(metrics_close)

/* NULL with errno set and the reason in err, which may be NULL. */
FILE *metrics_open(const struct metrics_sampler *sampler, const char *name, struct err *err);
/* Always -1. */
int metrics_malformed(const struct metrics_sampler *sampler, const char *name, struct err *err);
/* A decimal number at *at, which moves behind it. No sign, no space, no overflow: what sscanf(3)
 * would let pass. */
bool metrics_parse_u64(const char **at, uint64_t *ret);
/* "12.34", with exactly two decimals, and then `end`. */
bool metrics_parse_centi(const char **at, char end, uint64_t *ret_whole, uint64_t *ret_centi);
void metrics_skip_spaces(const char **at);

/* metrics_net.c */
int metrics_sample_network(struct metrics_sampler *sampler, struct metrics_sample *sample,
                           struct err *err);
/* metrics_pressure.c */
int metrics_sample_pressure(struct metrics_sampler *sampler, struct metrics_sample *sample,
                            struct err *err);
