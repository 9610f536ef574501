/* `sandstorm top`: the fleet as it works, redrawn when something changes, about once a second at
 * most. Without a terminal, one table. next: client/watch.c, cli/fleet.c, cli/top_view.c. */
#include "cli/cli.h"
#include "cli/fleet.h"
#include "cli/graph.h"
#include "cli/leave.h"
#include "cli/terminal.h"
#include "cli/text.h"
#include "cli/top_view.h"

#include "client/client-internal.h"
#include "common/clock.h"

#include <signal.h>
#include <stddef.h>
#include <sys/epoll.h>

#define FRAME_US    1000000u
#define QUIET_TICKS 5u /* without news: ages grow all the same */
#define RETRY_US    2000000u

struct arguments {
    struct cli_common common;
    const char *selector;
    uint64_t count;
    bool once;
};

static const struct option options[] = {
    CLI_COMMON_OPTIONS(struct arguments, common),
    { "selector", 'l', OPTION_STRING, "SELECTOR",
      "Only those whose labels fit: env=ci,role!=db,gpu,!old", offsetof(struct arguments, selector),
      0, 0 },
    { "count", 'n', OPTION_UINT, "COUNT", "End after so many pictures",
      offsetof(struct arguments, count), 1, UINT32_MAX },
    { "once", 0, OPTION_FLAG, NULL,
      "Print one table and end, as it does when stdout is no terminal",
      offsetof(struct arguments, once), 0, 0 },
    { 0 },
};

static const char *const examples[] = {
    "sandstorm top",
    "CPU, memory, load and commands of all sandboxes, the busiest first; q or Ctrl-C ends it",
    "sandstorm top -l env=ci --once",
    "One table of the CI fleet",
    NULL,
};

static const char *const environment[] = {
    "NO_COLOR",
    "If set, no colours",
    NULL,
};

static const struct option_page page = {
    .program = "sandstorm top",
    .section = 1,
    .summary = "watch how busy sandboxes are",
    .usage = "[OPTION...]",
    .options = options,
    .environment = environment,
    .examples = examples,
};

struct top {
    struct sandstorm_client *client;
    struct fleet *fleet;
    struct terminal terminal;
    struct loop_timer *tick;
    struct loop_signal *resize, *suspend;
    struct loop_io *keys;
    bool live, current, changed;
    unsigned quiet;
    uint64_t frames_left; /* 0: for ever */
    const char *note;
    char note_text[SANDSTORM_TEXT_MAX];
    struct err err;
};

static void draw(struct top *top)
{
    struct top_view view = {
        .colour = terminal_colours(),
        .utf8 = graph_utf8(),
        .screen = top->live,
        .note = top->note,
        .now_ms = wall_ms(),
    };
    terminal_size(&view.rows, &view.columns);
    if (!top->live)
        view.rows = 0;
    top->changed = false;
    top->quiet = 0;
    if (top_view_print(&view, top->fleet, stdout, &top->err) < 0)
        client_leave(top->client);
    (void)fflush(stdout);
    bool counts = top->current && top->frames_left > 0;
    if (ferror(stdout) || (counts && --top->frames_left == 0))
        client_leave(top->client);
}

static void on_tick(void *userdata)
{
    struct top *top = userdata;
    loop_timer_start(top->tick, FRAME_US);
    if (top->current && (top->changed || (top->live && ++top->quiet >= QUIET_TICKS)))
        draw(top);
}

static void on_resize(void *userdata, int number)
{
    (void)number;
    draw(userdata);
}

/* Ctrl-Z: the shell gets its terminal as it was, and we take it again afterwards. */
static void on_suspend(void *userdata, int number)
{
    struct top *top = userdata;
    (void)number;
    terminal_give_back(&top->terminal);
    (void)raise(SIGSTOP);
    terminal_take(&top->terminal);
    draw(top);
}

static void on_key(void *userdata, uint32_t events)
{
    struct top *top = userdata;
    char key = 0;
    ssize_t size = read(STDIN_FILENO, &key, 1);
    if (size <= 0) {
        /* Nobody sits there any more; HUP follows if it was a terminal that went. */
        loop_io_free(TAKE_PTR(top->keys));
        return;
    }
    (void)events;
    if (key == 'q' || key == 'Q')
        client_leave(top->client);
}

static bool on_change(void *userdata, enum sandstorm_change change,
                      const struct sandstorm_sandbox *sandbox)
{
    struct top *top = userdata;
    const struct sandstorm_sandbox *missing;
    top->changed = true;
    switch (change) {
    case SANDSTORM_CHANGE_SANDBOX:
        return fleet_put(top->fleet, sandbox, &top->err) == 0;
    case SANDSTORM_CHANGE_GONE:
        fleet_drop(top->fleet, sandbox->id);
        return true;
    default:
        while ((missing = fleet_untold(top->fleet)))
            fleet_drop(top->fleet, missing->id);
        top->note = NULL;
        if (!top->current || !top->live) {
            top->current = true;
            draw(top);
        }
        return !client_left(top->client);
    }
}

static int begin_live(struct top *top, struct err *err)
{
    struct loop *loop = client_loop(top->client);
    if (loop_signal_new(loop, SIGWINCH, on_resize, top, &top->resize, err) < 0 ||
        loop_signal_new(loop, SIGTSTP, on_suspend, top, &top->suspend, err) < 0)
        return -1;
    terminal_take(&top->terminal);
    if (top->terminal.raw &&
        loop_io_new(loop, STDIN_FILENO, EPOLLIN, on_key, top, &top->keys, err) < 0)
        return -1;
    top->note = "asking the orchestrator ...";
    draw(top);
    return 0;
}

static void top_done(struct top *top)
{
    terminal_give_back(&top->terminal);
    loop_timer_free(top->tick);
    loop_signal_free(top->resize);
    loop_signal_free(top->suspend);
    loop_io_free(top->keys);
}
#define CLEANUP_TOP CLEANUP(top_done)

/* Live, an orchestrator that goes away is waited for: what was last known stays to be seen. */
static bool may_retry(struct top *top, const struct sandstorm_error *error)
{
    if (!top->live || !top->current || error->code != SANDSTORM_UNAVAILABLE)
        return false;
    (void)snprintf(top->note_text, sizeof(top->note_text), "out of date: %.400s", error->text);
    top->note = top->note_text;
    draw(top);
    return true;
}

static int run(struct top *top, struct leave *leave, const struct arguments *arguments,
               struct sandstorm_error *error)
{
    const struct sandstorm_watch_options watch = {
        .selector = arguments->selector,
        .metrics = true,
        .each = on_change,
        .userdata = top,
    };
    int r;
    do {
        fleet_begin(top->fleet);
        r = sandstorm_watch(top->client, &watch, error);
    } while (r < 0 && may_retry(top, error) && leave_wait(leave, RETRY_US));
    if (top->err.code != ERR_NONE)
        return cli_error(&top->err, error);
    return r < 0 && !client_left(top->client) ? -1 : leave_status(leave);
}

static int act(const void *values, char **words, struct sandstorm_error *error)
{
    const struct arguments *arguments = values;
    static const int numbers[] = { SIGWINCH, SIGTSTP };
    (void)words;
    struct err err = { 0 };
    CLEANUP_FLEET struct fleet *fleet = NULL;
    CLEANUP_SANDSTORM struct sandstorm_client *client = NULL;
    CLEANUP_LEAVE struct leave leave = { 0 };
    CLEANUP_TOP struct top top = { .live = !arguments->once && terminal_there() };
    top.frames_left = arguments->count ? arguments->count : !top.live;
    if (arguments->once && arguments->count > 1) {
        (void)err_set(&err, ERR_INVALID, "give --once or --count, not both");
        return cli_error(&err, error);
    }
    if (fleet_new(&fleet, &err) < 0 || leave_prepare(&err) < 0 ||
        (top.live && loop_signals_block(numbers, ELEMENTS(numbers), &err) < 0))
        return cli_error(&err, error);
    top.fleet = fleet;
    if (cli_connect(&arguments->common, &client, error) < 0)
        return -1;
    top.client = client;
    if (leave_begin(&leave, client, &err) < 0 ||
        loop_timer_new(client_loop(client), on_tick, &top, &top.tick, &err) < 0 ||
        (top.live && begin_live(&top, &err) < 0))
        return cli_error(&err, error);
    loop_timer_start(top.tick, FRAME_US);
    return run(&top, &leave, arguments, error);
}

const struct cli_verb cli_top = {
    .name = "top", .page = &page, .act = act, .size = sizeof(struct arguments)
};
