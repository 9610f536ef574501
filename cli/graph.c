/* Bars and sparklines. Called by cli/cmd_describe.c and cli/top_view.c. */
#include "cli/graph.h"

#include "common/macros.h"

#include <stdlib.h>
#include <string.h>

#define LEVELS 8u

bool graph_utf8(void)
{
    static const char *const names[] = { "LC_ALL", "LC_CTYPE", "LANG" };
    for (size_t i = 0; i < ELEMENTS(names); i++) {
        const char *value = getenv(names[i]);
        if (value && *value)
            return strcasestr(value, "utf-8") || strcasestr(value, "utf8");
    }
    return false;
}

static char *put(char *end, const char *text)
{
    size_t size = strlen(text);
    (void)memcpy(end, text, size + 1);
    return end + size;
}

void graph_bar(uint32_t basis_points, unsigned cells, bool utf8, char out[GRAPH_MAX])
{
    /* A cell that is filled to the left by eighths: U+258F to U+2588. */
    static const char *const eighths[] = { "\xe2\x96\x91", "\xe2\x96\x8f", "\xe2\x96\x8e",
                                           "\xe2\x96\x8d", "\xe2\x96\x8c", "\xe2\x96\x8b",
                                           "\xe2\x96\x8a", "\xe2\x96\x89", "\xe2\x96\x88" };
    char *end = out;
    cells = MIN(cells, GRAPH_CELLS_MAX);
    uint32_t value = MIN(basis_points, GRAPH_FULL);
    unsigned filled = (value * cells * LEVELS + GRAPH_FULL / 2) / GRAPH_FULL;
    *out = '\0';
    for (unsigned i = 0; i < cells; i++) {
        unsigned here = filled > i * LEVELS ? MIN(filled - i * LEVELS, LEVELS) : 0;
        end = put(end, utf8 ? eighths[here] : here > LEVELS / 2 ? "#" : ".");
    }
}

void graph_spark(const uint32_t *basis_points, size_t count, bool utf8, char out[GRAPH_MAX])
{
    static const char *const blocks[LEVELS] = { "\xe2\x96\x81", "\xe2\x96\x82", "\xe2\x96\x83",
                                                "\xe2\x96\x84", "\xe2\x96\x85", "\xe2\x96\x86",
                                                "\xe2\x96\x87", "\xe2\x96\x88" };
    static const char *const ascii[LEVELS] = { "_", ".", ":", "-", "=", "+", "*", "#" };
    char *end = out;
    size_t first = count > GRAPH_CELLS_MAX ? count - GRAPH_CELLS_MAX : 0;
    *out = '\0';
    for (size_t i = first; i < count; i++) {
        uint32_t level = MIN(basis_points[i], GRAPH_FULL) * (LEVELS - 1) + GRAPH_FULL / 2;
        end = put(end, (utf8 ? blocks : ascii)[level / GRAPH_FULL]);
    }
}
