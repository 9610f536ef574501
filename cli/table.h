/* Tables that fit the terminal; cells are made harmless first. Main thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct table;

struct table_column {
    const char *name;
    double width; /* a fraction of the terminal, or characters from 1 on */
    bool right, cut;
};

/* NULL when there is no memory; the others accept that. The columns end with a NULL name. */
struct table *table_new(const struct table_column *columns, bool no_headers);
/* A cell for each column. */
void table_add(struct table *table, const char *const *cells);
bool table_is_empty(const struct table *table);
void table_print(struct table *table);
void table_free(struct table *table);

static inline void table_cleanup(struct table **table)
{
    table_free(*table);
}
#define CLEANUP_TABLE CLEANUP(table_cleanup)
