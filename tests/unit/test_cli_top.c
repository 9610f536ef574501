/* The picture of `sandstorm top`, whatever the size: never wider or higher than the terminal, the
 * busiest first, and no colour where none is wanted. With it the parts that it is made of: the
 * fleet as kept, bars, sparklines, and times as people write them. */
#include "cli/graph.h"
#include "cli/since.h"
#include "cli/top_view.h"
#include "common/utf8.h"
#include "tests/unit/random.h"

#include <criterion/criterion.h>
#include <string.h>

#define NOW INT64_C(1763466604000)
#define CONTAINS(text, part)                                                                       \
    cr_assert(strstr((text), (part)), "\"%s\" lacks \"%s\"", (text), (part))
#define LACKS(text, part) cr_assert(!strstr((text), (part)), "\"%s\" has \"%s\"", (text), (part))

static struct err err;

static struct sandstorm_sandbox sandbox_of(const char *id, uint32_t cpu)
{
    return (struct sandstorm_sandbox){
        .id = id,
        .labels = "",
        .agent_version = "1",
        .last_error = "",
        .state = SANDSTORM_STATE_ONLINE,
        .runner_connected = true,
        .last_seen_unix_ms = NOW - 12000,
        .cpu_basis_points = cpu,
        .load1_centi = 142,
        .commands_running = 2,
        .memory_total_bytes = 100,
        .memory_available_bytes = 10,
        .disk_total_bytes = 100,
        .disk_free_bytes = 60,
    };
}

static void add(struct fleet *fleet, const char *id, uint32_t cpu, enum sandstorm_state state)
{
    struct sandstorm_sandbox sandbox = sandbox_of(id, cpu);
    sandbox.state = state;
    cr_assert_eq(fleet_put(fleet, &sandbox, &err), 0);
}

static struct fleet *small_fleet(void)
{
    struct fleet *fleet = NULL;
    cr_assert_eq(fleet_new(&fleet, &err), 0);
    add(fleet, "idle", 100, SANDSTORM_STATE_ONLINE);
    add(fleet, "gone", 9900, SANDSTORM_STATE_OFFLINE);
    add(fleet, "busy", 9700, SANDSTORM_STATE_ONLINE);
    add(fleet, "half", 5000, SANDSTORM_STATE_SUSPECT);
    return fleet;
}

/* To be freed. */
static char *picture(const struct top_view *view, const struct fleet *fleet)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    cr_assert(out);
    cr_assert_eq(top_view_print(view, fleet, out, &err), 0);
    cr_assert_eq(fclose(out), 0);
    return text;
}

Test(cli_top, shows_the_busiest_first_and_who_is_away_last)
{
    CLEANUP_FLEET struct fleet *fleet = small_fleet();
    const struct top_view view = { .columns = 80, .now_ms = NOW };
    CLEANUP_FREE char *text = picture(&view, fleet);
    CONTAINS(text, "11:50:04  4 sandboxes, 2 online, 1 suspect, 1 offline; 6 commands\n");
    const char *busy = strstr(text, "\nbusy"), *half = strstr(text, "\nhalf"),
               *idle = strstr(text, "\nidle"), *gone = strstr(text, "\ngone");
    cr_assert(busy && half && idle && gone);
    cr_assert(busy < half && half < idle && idle < gone, "%s", text);
    CONTAINS(busy, " online          ########  97% #######.  90%  1.42  40%    2   12s\n");
    /* What was measured before it went says nothing of now. */
    CONTAINS(gone, " offline         ........    - ........    -     -    -    -   12s\n");
    LACKS(text, "\x1b");
}

/* How many cells each line takes, without what is not shown; and how many lines. */
static unsigned measure(const char *text, unsigned *ret_widest)
{
    unsigned lines = 1, cells = 0;
    *ret_widest = 0;
    for (size_t left = strlen(text); left > 0;) {
        size_t length = utf8_character((const uint8_t *)text, left);
        cr_assert_gt(length, 0u, "not UTF-8");
        if (*text == '\x1b') {
            length = strcspn(text, "HJKm") + 1;
        } else if (*text == '\n') {
            lines++;
            cells = 0;
        } else if (*text != '\r') {
            cells++;
            *ret_widest = MAX(*ret_widest, cells);
        }
        text += length;
        left -= length;
    }
    return lines;
}

Test(cli_top, fits_every_terminal)
{
    CLEANUP_FLEET struct fleet *fleet = small_fleet();
    for (unsigned i = 0; i < 60; i++) {
        char id[80];
        (void)snprintf(id, sizeof(id), "sandbox-with-a-name-that-is-rather-long-for-a-table-%u", i);
        add(fleet, id, i * 150, SANDSTORM_STATE_ONLINE);
    }
    for (unsigned rows = 1; rows < 80; rows++)
        for (unsigned columns = 1; columns < 200; columns += 7) {
            const struct top_view view = { .rows = rows,
                                           .columns = columns,
                                           .screen = true,
                                           .colour = columns % 2,
                                           .utf8 = rows % 2,
                                           .note = rows % 3 ? NULL : "out of date: \x1b[2J away",
                                           .now_ms = NOW };
            CLEANUP_FREE char *text = picture(&view, fleet);
            unsigned widest, lines = measure(text, &widest);
            cr_assert_leq(lines, rows, "%u lines in %ux%u", lines, columns, rows);
            cr_assert_leq(widest, columns, "%u cells in %ux%u", widest, columns, rows);
            LACKS(text, "\x1b[2J");
        }
}

Test(cli_top, says_how_many_do_not_fit)
{
    CLEANUP_FLEET struct fleet *fleet = small_fleet();
    const struct top_view view = { .rows = 5, .columns = 80, .screen = true, .now_ms = NOW };
    CLEANUP_FREE char *text = picture(&view, fleet);
    CONTAINS(text, "busy");
    CONTAINS(text, "half");
    LACKS(text, "idle");
    CONTAINS(text, "and 2 more");
}

Test(cli_top, has_colours_only_when_asked)
{
    CLEANUP_FLEET struct fleet *fleet = small_fleet();
    struct top_view view = { .columns = 80, .colour = true, .now_ms = NOW };
    CLEANUP_FREE char *coloured = picture(&view, fleet);
    CONTAINS(coloured, "\x1b[31m########\x1b[0m");
    view.colour = false;
    CLEANUP_FREE char *plain = picture(&view, fleet);
    LACKS(plain, "\x1b");
}

/* The fleet as kept. */

Test(cli_top, a_fleet_keeps_its_order_whatever_comes_and_goes)
{
    CLEANUP_FLEET struct fleet *fleet = NULL;
    bool there[200] = { false };
    uint64_t state = 7;
    char id[16];
    cr_assert_eq(fleet_new(&fleet, &err), 0);
    for (unsigned i = 0; i < 5000; i++) {
        unsigned which = (unsigned)random_below(&state, ELEMENTS(there));
        bool put = random_below(&state, 2);
        (void)snprintf(id, sizeof(id), "s-%03u", which);
        if (put)
            add(fleet, id, i, SANDSTORM_STATE_ONLINE);
        else
            fleet_drop(fleet, id);
        there[which] = put;
    }
    size_t at = 0;
    for (unsigned i = 0; i < ELEMENTS(there); i++) {
        (void)snprintf(id, sizeof(id), "s-%03u", i);
        cr_assert_eq(fleet_find(fleet, id) != NULL, there[i], "%s", id);
        if (there[i])
            cr_assert_str_eq(fleet_at(fleet, at++)->id, id);
    }
    cr_assert_eq(at, fleet_count(fleet));
}

Test(cli_top, a_fleet_knows_who_was_not_told_of_again)
{
    CLEANUP_FLEET struct fleet *fleet = small_fleet();
    cr_assert_null(fleet_untold(fleet));
    fleet_begin(fleet);
    add(fleet, "busy", 1, SANDSTORM_STATE_ONLINE);
    add(fleet, "gone", 1, SANDSTORM_STATE_ONLINE);
    add(fleet, "half", 1, SANDSTORM_STATE_ONLINE);
    cr_assert_str_eq(fleet_untold(fleet)->id, "idle");
    fleet_drop(fleet, fleet_untold(fleet)->id);
    cr_assert_null(fleet_untold(fleet));
    cr_assert_eq(fleet_count(fleet), 3u);
}

/* Bars and sparklines. */

Test(cli_top, bars_are_as_long_as_they_are_told_to_be)
{
    char bar[GRAPH_MAX];
    graph_bar(5000, 8, false, bar);
    cr_assert_str_eq(bar, "####....");
    graph_bar(0, 4, true, bar);
    cr_assert_str_eq(bar, "\u2591\u2591\u2591\u2591");
    graph_bar(10000, 4, true, bar);
    cr_assert_str_eq(bar, "\u2588\u2588\u2588\u2588");
    graph_bar(UINT32_MAX, 3, false, bar);
    cr_assert_str_eq(bar, "###");
    graph_bar(3750, 4, true, bar);
    cr_assert_str_eq(bar, "\u2588\u258c\u2591\u2591");
    graph_bar(5000, UINT32_MAX, true, bar);
    cr_assert_eq(strlen(bar), GRAPH_MAX - 1);
}

Test(cli_top, a_sparkline_has_the_last_values)
{
    char spark[GRAPH_MAX];
    uint32_t values[GRAPH_CELLS_MAX + 2] = { 10000, 10000, 0, 5000, 10000, UINT32_MAX };
    graph_spark(values + 2, 4, false, spark);
    cr_assert_str_eq(spark, "_=##");
    graph_spark(values, ELEMENTS(values), true, spark);
    cr_assert_eq(strlen(spark), GRAPH_MAX - 1);
    cr_assert_eq(strncmp(spark, "\u2581\u2585\u2588", 9), 0);
    graph_spark(values, 0, true, spark);
    cr_assert_str_eq(spark, "");
}

Test(cli_top, the_locale_decides_about_block_characters)
{
    cr_assert_eq(setenv("LC_ALL", "", 1) | setenv("LC_CTYPE", "", 1) | setenv("LANG", "", 1), 0);
    cr_assert_not(graph_utf8());
    cr_assert_eq(setenv("LANG", "de_DE.UTF-8", 1), 0);
    cr_assert(graph_utf8());
    cr_assert_eq(setenv("LC_ALL", "C", 1), 0);
    cr_assert_not(graph_utf8());
    cr_assert_eq(setenv("LC_ALL", "en_US.utf8", 1), 0);
    cr_assert(graph_utf8());
}

/* Times. */

Test(cli_top, times_are_read_as_people_write_them)
{
    static const struct {
        const char *text;
        int64_t us; /* -1: none */
    } rows[] = {
        { "1h", NOW * 1000 - INT64_C(3600000000) },
        { "500ms", NOW * 1000 - 500000 },
        { "100000d", 0 },
        { "2025-11-18T11:50:04Z", NOW * 1000 },
        { "2025-11-18 11:50:04", NOW * 1000 },
        { "2025-11-18T11:50", (NOW - 4000) * 1000 },
        { "1970-01-02", INT64_C(86400000000) },
        { "2025-02-30", -1 },
        { "2025-13-01", -1 },
        { "2025-11-18T24:00", -1 },
        { "2025-11-18T11:50:61Z", -1 },
        { "2025-11-18T11:50:04Zx", -1 },
        { "2025-11-18T", -1 },
        { "25-11-18", -1 },
        { " 2025-11-18", -1 },
        { "", -1 },
        { "now", -1 },
    };
    for (size_t i = 0; i < ELEMENTS(rows); i++) {
        int64_t us = -1;
        int r = since_parse(rows[i].text, NOW * 1000, &us, &err);
        cr_assert_eq(r, rows[i].us < 0 ? -1 : 0, "\"%s\"", rows[i].text);
        cr_assert_eq(us, rows[i].us, "\"%s\" is %lld", rows[i].text, (long long)us);
    }
}
