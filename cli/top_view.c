/* What `sandstorm top` shows. Called by cli/cmd_top.c for every frame; next: cli/graph.c. */
#include "cli/top_view.h"

#include "cli/graph.h"
#include "cli/sandbox_text.h"
#include "cli/text.h"
#include "common/utf8.h"

#include <string.h>

#define STATE_CELLS   15u /* "online,draining" */
#define NUMBER_CELLS  5u  /* of load and ages */
#define PERCENT_CELLS 4u
#define NAME_MIN      14u
#define NAME_WIDE     40u
#define BAR_MAX       20u
/* Everything but the name and the bars: state, two percentages with a space before each, load,
 * disk, commands, age, and a space between every two. */
#define FIXED_CELLS                                                                                \
    (STATE_CELLS + 2 * (PERCENT_CELLS + 1) + 2 * NUMBER_CELLS + 2 * PERCENT_CELLS + 7)
#define HIGH   8500u /* basis points */
#define RAISED 6000u

#define COLOUR_NONE   ""
#define COLOUR_RED    "\x1b[31m"
#define COLOUR_GREEN  "\x1b[32m"
#define COLOUR_YELLOW "\x1b[33m"
#define COLOUR_BOLD   "\x1b[1m"
#define COLOUR_HEADER "\x1b[7m"
#define COLOUR_RESET  "\x1b[0m"

/* One line on its way out, and how many cells are left of it. */
struct line {
    const struct top_view *view;
    FILE *out;
    unsigned left;
};

/* Exactly `cells` of the text, cut or filled with spaces. Every character counts as one cell. */
static void put(struct line *line, const char *colour, unsigned cells, bool right, const char *text)
{
    size_t size = 0, length, left = strlen(text);
    unsigned shown = 0;
    bool coloured = line->view->colour && *colour;
    cells = MIN(cells, line->left);
    line->left -= cells;
    while (shown < cells && left > size &&
           (length = utf8_character((const uint8_t *)text + size, left - size)) > 0) {
        size += length;
        shown++;
    }
    (void)fprintf(line->out, "%s%*s%.*s%*s%s", coloured ? colour : "",
                  right ? (int)(cells - shown) : 0, "", (int)size, text,
                  right ? 0 : (int)(cells - shown), "", coloured ? COLOUR_RESET : "");
}

static void space(struct line *line)
{
    put(line, COLOUR_NONE, 1, false, "");
}

/* What was there goes first: erasing behind a line that fills the row would take its last cell. */
static struct line line_begin(const struct top_view *view, FILE *out)
{
    if (view->screen)
        (void)fputs("\x1b[2K", out);
    return (struct line){ view, out, view->columns };
}

static void line_end(const struct line *line, bool last)
{
    /* No new line after the last row: that would scroll. */
    if (!last || !line->view->screen)
        (void)fputs(line->view->screen ? "\r\n" : "\n", line->out);
}

struct layout {
    unsigned name, bar;
};

static struct layout lay_out(unsigned columns)
{
    unsigned room = columns > FIXED_CELLS ? columns - FIXED_CELLS : 0;
    struct layout layout = { .bar = room > NAME_MIN ? MIN((room - NAME_MIN) / 2, BAR_MAX) : 0 };
    layout.name = MIN(MAX(room - 2 * layout.bar, NAME_MIN), NAME_WIDE);
    return layout;
}

static const char *load_colour(uint32_t basis_points)
{
    return basis_points >= HIGH     ? COLOUR_RED
           : basis_points >= RAISED ? COLOUR_YELLOW
                                    : COLOUR_GREEN;
}

static void put_share(struct line *line, const struct layout *layout, bool known,
                      uint32_t basis_points)
{
    char bar[GRAPH_MAX], percent[16];
    (void)snprintf(percent, sizeof(percent), "%u%%", sandbox_percent(basis_points));
    graph_bar(known ? basis_points : 0, layout->bar, line->view->utf8, bar);
    put(line, known ? load_colour(basis_points) : COLOUR_NONE, layout->bar, false, bar);
    space(line);
    put(line, COLOUR_NONE, PERCENT_CELLS, true, known ? percent : "-");
}

static const char *state_colour(const struct sandstorm_sandbox *sandbox)
{
    if (sandbox_is_ready(sandbox))
        return COLOUR_NONE;
    return sandbox->state == SANDSTORM_STATE_ONLINE || sandbox->state == SANDSTORM_STATE_SUSPECT
               ? COLOUR_YELLOW
               : COLOUR_RED;
}

/* What was measured still says something of now. */
static bool is_measured(const struct sandstorm_sandbox *sandbox)
{
    return sandbox_was_heard(sandbox) &&
           (sandbox->state == SANDSTORM_STATE_ONLINE || sandbox->state == SANDSTORM_STATE_SUSPECT);
}

static void put_row(struct line *line, const struct layout *layout,
                    const struct sandstorm_sandbox *sandbox)
{
    char state[SANDBOX_STATE_MAX], load[16], disk[16], commands[16], age[TEXT_TIME_MAX];
    CLEANUP_FREE char *id = text_escape(sandbox->id);
    bool known = is_measured(sandbox);
    sandbox_state_text(sandbox, state);
    (void)snprintf(load, sizeof(load), "%.2f", sandbox->load1_centi / 100.0);
    (void)snprintf(disk, sizeof(disk), "%u%%", sandbox_percent(sandbox_disk_basis_points(sandbox)));
    (void)snprintf(commands, sizeof(commands), "%u", sandbox->commands_running);
    text_duration(line->view->now_ms - sandbox->last_seen_unix_ms, age);
    put(line, COLOUR_NONE, layout->name, false, id ? id : "");
    space(line);
    put(line, state_colour(sandbox), STATE_CELLS, false, state);
    space(line);
    put_share(line, layout, known, sandbox->cpu_basis_points);
    space(line);
    put_share(line, layout, known, sandbox_memory_basis_points(sandbox));
    space(line);
    put(line, COLOUR_NONE, NUMBER_CELLS, true, known ? load : "-");
    space(line);
    put(line, COLOUR_NONE, PERCENT_CELLS, true, known ? disk : "-");
    space(line);
    put(line, COLOUR_NONE, PERCENT_CELLS, true, known ? commands : "-");
    space(line);
    put(line, COLOUR_NONE, NUMBER_CELLS, true, sandbox->last_seen_unix_ms ? age : "-");
}

static void put_header(struct line *line, const struct layout *layout)
{
    char text[256];
    (void)snprintf(text, sizeof(text), "%-*.*s %-*s %-*s %-*s %*s %*s %*s %*s", (int)layout->name,
                   (int)layout->name, "SANDBOX", STATE_CELLS, "STATE",
                   (int)(layout->bar + 1 + PERCENT_CELLS), "CPU",
                   (int)(layout->bar + 1 + PERCENT_CELLS), "MEM", NUMBER_CELLS, "LOAD",
                   PERCENT_CELLS, "DISK", PERCENT_CELLS, "CMDS", NUMBER_CELLS, "SEEN");
    put(line, COLOUR_HEADER, line->view->screen ? line->left : (unsigned)strlen(text), false, text);
}

static void put_summary(struct line *line, const struct fleet *fleet)
{
    static const enum sandstorm_state states[] = { SANDSTORM_STATE_ONLINE, SANDSTORM_STATE_SUSPECT,
                                                   SANDSTORM_STATE_OFFLINE, SANDSTORM_STATE_EVICTED,
                                                   SANDSTORM_STATE_REVOKED };
    unsigned counts[ELEMENTS(states)] = { 0 };
    uint64_t commands = 0;
    size_t count = fleet_count(fleet);
    char text[256], time[TEXT_TIME_MAX];
    text_time(line->view->now_ms, time);
    for (size_t i = 0; i < count; i++) {
        const struct sandstorm_sandbox *sandbox = fleet_at(fleet, i);
        commands += is_measured(sandbox) ? sandbox->commands_running : 0;
        for (size_t k = 0; k < ELEMENTS(states); k++)
            counts[k] += sandbox->state == states[k];
    }
    int size = snprintf(text, sizeof(text), "%.8s  %zu sandbox%s", time + 11, count,
                        count == 1 ? "" : "es");
    for (size_t k = 0; k < ELEMENTS(states); k++)
        if (counts[k] > 0)
            size += snprintf(text + size, sizeof(text) - (size_t)size, ", %u %s", counts[k],
                             sandstorm_state_name(states[k]));
    (void)snprintf(text + size, sizeof(text) - (size_t)size, "; %llu command%s",
                   (unsigned long long)commands, commands == 1 ? "" : "s");
    put(line, COLOUR_BOLD, MIN(line->left, (unsigned)strlen(text)), false, text);
}

/* The busiest first, then by name; who is away comes last. */
static int compare(const void *a, const void *b)
{
    const struct sandstorm_sandbox *x = *(const struct sandstorm_sandbox *const *)a,
                                   *y = *(const struct sandstorm_sandbox *const *)b;
    bool x_here = is_measured(x), y_here = is_measured(y);
    if (x_here != y_here)
        return x_here ? -1 : 1;
    /* By the whole per cent that is shown, so that rows do not change places for nothing. */
    uint32_t x_cpu = sandbox_percent(x->cpu_basis_points),
             y_cpu = sandbox_percent(y->cpu_basis_points);
    if (x_here && x_cpu != y_cpu)
        return x_cpu > y_cpu ? -1 : 1;
    return strcmp(x->id, y->id);
}

static void print_rows(const struct top_view *view, const struct sandstorm_sandbox *const *rows,
                       size_t count, size_t shown, FILE *out)
{
    const struct layout layout = lay_out(view->columns);
    for (size_t i = 0; i < shown; i++) {
        struct line line = line_begin(view, out);
        put_row(&line, &layout, rows[i]);
        line_end(&line, i + 1 == count);
    }
    if (shown < count) {
        struct line line = line_begin(view, out);
        char text[64];
        (void)snprintf(text, sizeof(text), "and %zu more", count - shown);
        put(&line, COLOUR_NONE, line.left, false, text);
        line_end(&line, true);
    }
}

int top_view_print(const struct top_view *view, const struct fleet *fleet, FILE *out,
                   struct err *err)
{
    const struct layout layout = lay_out(view->columns);
    size_t count = fleet_count(fleet), above = view->note ? 3 : 2;
    CLEANUP_FREE const struct sandstorm_sandbox **rows = calloc(count + 1, sizeof(*rows));
    CLEANUP_FREE char *note = text_escape(view->note ? view->note : "");
    if (!rows || !note)
        return err_nomem(err);
    for (size_t i = 0; i < count; i++)
        rows[i] = fleet_at(fleet, i);
    qsort(rows, count, sizeof(*rows), compare);
    size_t room = view->rows == 0 ? count : view->rows > above ? view->rows - above : 0;
    size_t shown = count <= room ? count : room > 0 ? room - 1 : 0;
    if (view->screen)
        (void)fputs("\x1b[H", out);
    struct line line = line_begin(view, out);
    put_summary(&line, fleet);
    line_end(&line, view->rows == 1);
    if (view->note && view->rows != 1) {
        line = line_begin(view, out);
        put(&line, COLOUR_YELLOW, line.left, false, note);
        line_end(&line, view->rows == 2);
    }
    if (view->rows == 0 || view->rows >= above) {
        line = line_begin(view, out);
        put_header(&line, &layout);
        line_end(&line, count == 0 || view->rows == above);
    }
    if (room > 0)
        print_rows(view, rows, count, shown, out);
    /* And nothing of an earlier frame below. */
    if (view->screen && above + count < view->rows)
        (void)fputs("\r\n\x1b[J", out);
    return 0;
}
