/* What options.c shares with its siblings: options_print.c shows the built-in row, config.c reads
 * numbers by the same rules as the command line. Any thread. */
#pragma once

#include "common/options.h"

/* --help, which every program has without listing it. */
extern const struct option options_help_row;

/* The short name of a row, or 0. -h means --help only where the table does not use it itself. */
char options_letter(const struct option_page *page, const struct option *option);

/* The whole of `text` as a decimal number, or as a duration when `duration`, within min and max;
 * max 0 means unbounded. */
int options_number(const char *text, bool duration, uint64_t min, uint64_t max, uint64_t *ret,
                   struct err *err) must_use;
