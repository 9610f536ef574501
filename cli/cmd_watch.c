/* `sandstorm watch`: a line for everything that changes about sandboxes, until interrupted. When
 * the orchestrator goes away it is asked again, and what changed meanwhile is told then. next:
 * client/watch.c, cli/fleet.c. */
#include "cli/cli.h"
#include "cli/fleet.h"
#include "cli/leave.h"
#include "cli/sandbox_text.h"
#include "cli/text.h"

#include "common/clock.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define RETRY_US    2000000u
#define CHANGES_MAX 1024u

struct arguments {
    struct cli_common common;
    const char *selector;
};

static const struct option options[] = {
    CLI_COMMON_OPTIONS(struct arguments, common),
    { "selector", 'l', OPTION_STRING, "SELECTOR",
      "Only those whose labels fit: env=ci,role!=db,gpu,!old", offsetof(struct arguments, selector),
      0, 0 },
    { 0 },
};

static const char *const examples[] = {
    "sandstorm watch",
    "What is there, and then what comes, goes and changes, until Ctrl-C",
    "sandstorm watch -l env=ci",
    "Only the CI fleet",
    "sandstorm watch web-1",
    "Only one",
    NULL,
};

static const struct option_page page = {
    .program = "sandstorm watch",
    .section = 1,
    .summary = "show what changes about sandboxes",
    .usage = "[OPTION...] [SANDBOX]",
    .options = options,
    .examples = examples,
};

struct watching {
    struct fleet *fleet;
    bool heard;   /* the orchestrator has answered */
    bool current; /* what was there at the beginning has been told */
    bool told;    /* that the orchestrator is away */
    struct err err;
};

/* What changed, as words with semicolons between them. */
struct words {
    char text[CHANGES_MAX];
    size_t size;
};

static void __attribute__((format(printf, 2, 3))) add(struct words *words, const char *fmt, ...)
{
    size_t left = sizeof(words->text) - words->size;
    int size = snprintf(words->text + words->size, left, "%s", words->size > 0 ? "; " : "");
    va_list ap;
    words->size += MIN((size_t)MAX(size, 0), left - 1);
    left = sizeof(words->text) - words->size;
    va_start(ap, fmt);
    size = vsnprintf(words->text + words->size, left, fmt, ap);
    va_end(ap);
    words->size += MIN((size_t)MAX(size, 0), left - 1);
}

static void compare(const struct sandstorm_sandbox *before, const struct sandstorm_sandbox *now,
                    struct words *words)
{
    bool same_state = before->state == now->state;
    if (!same_state)
        add(words, "%s -> %s", sandstorm_state_name(before->state),
            sandstorm_state_name(now->state));
    else if (before->connected_unix_ms != now->connected_unix_ms &&
             now->state == SANDSTORM_STATE_ONLINE)
        add(words, "connected again");
    /* Who is away has no runner either; that is not news. */
    if (before->runner_connected != now->runner_connected && now->state == SANDSTORM_STATE_ONLINE)
        add(words, now->runner_connected ? "runner is there" : "runner is gone");
    if (before->draining != now->draining)
        add(words, now->draining ? "draining" : "not draining any more");
    if (strcmp(before->labels, now->labels) != 0)
        add(words, "labels %s -> %s", *before->labels ? before->labels : "(none)",
            *now->labels ? now->labels : "(none)");
    if (strcmp(before->agent_version, now->agent_version) != 0)
        add(words, "agent %s -> %s", before->agent_version, now->agent_version);
    if (before->last_error_unix_ms != now->last_error_unix_ms && *now->last_error)
        add(words, "it was away because: %s", now->last_error);
}

static void print_change(const char *id, const char *text)
{
    char time[TEXT_TIME_MAX];
    /* Before it is a line: a newline from an agent must not become another line. */
    CLEANUP_FREE char *name = text_escape(id), *harmless = text_escape(text);
    text_time(wall_ms(), time);
    if (name && harmless)
        (void)printf("%s  %-20s  %s\n", time, name, harmless);
    (void)fflush(stdout);
}

static void tell(const struct watching *watching, const struct sandstorm_sandbox *sandbox)
{
    const struct sandstorm_sandbox *before = fleet_find(watching->fleet, sandbox->id);
    struct words words = { 0 };
    char state[SANDBOX_STATE_MAX];
    sandbox_state_text(sandbox, state);
    if (before)
        compare(before, sandbox, &words);
    else
        add(&words, "%s%s", watching->current ? "new: " : "", state);
    if (words.size > 0)
        print_change(sandbox->id, words.text);
}

static void tell_gone(struct watching *watching, const char *id)
{
    print_change(id, "gone: removed, or not among these any more");
    fleet_drop(watching->fleet, id);
}

static bool on_change(void *userdata, enum sandstorm_change change,
                      const struct sandstorm_sandbox *sandbox)
{
    struct watching *watching = userdata;
    const struct sandstorm_sandbox *missing;
    watching->heard = true;
    switch (change) {
    case SANDSTORM_CHANGE_SANDBOX:
        tell(watching, sandbox);
        if (fleet_put(watching->fleet, sandbox, &watching->err) < 0)
            return false;
        break;
    case SANDSTORM_CHANGE_GONE:
        tell_gone(watching, sandbox->id);
        break;
    default:
        while ((missing = fleet_untold(watching->fleet)))
            tell_gone(watching, missing->id);
        if (watching->told)
            cli_complain("the orchestrator is back");
        watching->current = true;
        watching->told = false;
        break;
    }
    return !ferror(stdout);
}

/* Whether to try again: not where it never worked. */
static bool may_retry(struct watching *watching, const struct sandstorm_error *error)
{
    if (!watching->heard || error->code != SANDSTORM_UNAVAILABLE)
        return false;
    if (!watching->told)
        cli_complain(error->text);
    watching->told = true;
    return true;
}

static int watch(struct sandstorm_client *client, struct leave *leave,
                 const struct sandstorm_watch_options *watch_options, struct watching *watching,
                 struct sandstorm_error *error)
{
    do {
        fleet_begin(watching->fleet);
        if (sandstorm_watch(client, watch_options, error) == 0)
            return watching->err.code != ERR_NONE ? cli_error(&watching->err, error)
                                                  : leave_status(leave);
    } while (may_retry(watching, error) && leave_wait(leave, RETRY_US));
    return leave->number ? leave_status(leave) : -1;
}

static int act(const void *values, char **words, struct sandstorm_error *error)
{
    const struct arguments *arguments = values;
    struct watching watching = { 0 };
    const struct sandstorm_watch_options watch_options = {
        .selector = arguments->selector,
        .id = words[0],
        .each = on_change,
        .userdata = &watching,
    };
    CLEANUP_FLEET struct fleet *fleet = NULL;
    CLEANUP_SANDSTORM struct sandstorm_client *client = NULL;
    CLEANUP_LEAVE struct leave leave = { 0 };
    struct err err = { 0 };
    if (fleet_new(&fleet, &err) < 0 || leave_prepare(&err) < 0)
        return cli_error(&err, error);
    watching.fleet = fleet;
    if (cli_connect(&arguments->common, &client, error) < 0)
        return -1;
    if (leave_begin(&leave, client, &err) < 0)
        return cli_error(&err, error);
    return watch(client, &leave, &watch_options, &watching, error);
}

const struct cli_verb cli_watch = {
    .name = "watch", .page = &page, .act = act, .size = sizeof(struct arguments), .words_max = 1
};
