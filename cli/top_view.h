/* What `sandstorm top` shows: the fleet in so many rows and columns, the busiest first. Pure; any
 * thread. */
#pragma once

#include "cli/fleet.h"

#include <stdint.h>
#include <stdio.h>

struct top_view {
    unsigned rows, columns; /* rows 0: as many as it takes */
    bool colour, utf8;
    bool screen;      /* over what a terminal shows, instead of below it */
    const char *note; /* NULL, or what a person should know now */
    int64_t now_ms;
};

/* Never wider or higher than the view says. */
int top_view_print(const struct top_view *view, const struct fleet *fleet, FILE *out,
                   struct err *err) must_use;
