/* Tables on libsmartcols, which only this file knows. Called by the verbs that list. */
#include "cli/table.h"

#include "cli/text.h"
#include "common/macros.h"

#include <libsmartcols.h>

struct table {
    struct libscols_table *lines;
    size_t columns;
};

struct table *table_new(const struct table_column *columns, bool no_headers)
{
    struct table *table = calloc(1, sizeof(*table));
    if (!table)
        return NULL;
    table->lines = scols_new_table();
    if (!table->lines) {
        table_free(table);
        return NULL;
    }
    for (; columns->name; columns++, table->columns++)
        (void)scols_table_new_column(table->lines, columns->name, columns->width,
                                     (columns->right ? SCOLS_FL_RIGHT : 0) |
                                         (columns->cut ? SCOLS_FL_TRUNC : 0));
    /* Its own escaping would escape ours. */
    (void)scols_table_enable_noencoding(table->lines, 1);
    (void)scols_table_enable_noheadings(table->lines, no_headers);
    return table;
}

void table_add(struct table *table, const char *const *cells)
{
    struct libscols_line *line = table ? scols_table_new_line(table->lines, NULL) : NULL;
    for (size_t i = 0; line && i < table->columns; i++)
        (void)scols_line_refer_data(line, i, text_escape(cells[i]));
}

bool table_is_empty(const struct table *table)
{
    return !table || scols_table_is_empty(table->lines);
}

void table_print(struct table *table)
{
    if (table)
        (void)scols_print_table(table->lines);
}

void table_free(struct table *table)
{
    if (!table)
        return;
    scols_unref_table(table->lines);
    free(table);
}
