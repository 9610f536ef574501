/* `sandstorm why`: can this sandbox run commands, and if not, what is the matter and what to do.
 * The exit status says it to a script. next: cli/why.c for the rules. */
#include "cli/cli.h"
#include "cli/sandbox_text.h"
#include "cli/text.h"
#include "cli/why.h"

#include "common/clock.h"
#include "common/version.h"

#include <stddef.h>

#define NOT_READY 1

struct arguments {
    struct cli_common common;
};

static const struct option options[] = {
    CLI_COMMON_OPTIONS(struct arguments, common),
    { 0 },
};

static const char *const examples[] = {
    "sandstorm why web-1",
    "Is it ready? If not: the most probable cause first, each with what to do",
    "sandstorm why web-1 > /dev/null && sandstorm exec web-1 -- uptime",
    "The exit status is 0 when it can run commands, 1 when not",
    NULL,
};

static const struct option_page page = {
    .program = "sandstorm why",
    .section = 1,
    .summary = "say why a sandbox is not ready",
    .usage = "[OPTION...] SANDBOX",
    .options = options,
    .examples = examples,
};

static void print_time(const char *before, int64_t unix_ms)
{
    char time[TEXT_TIME_MAX], when[TEXT_TIME_MAX];
    text_time(unix_ms, time);
    text_when(unix_ms, when);
    if (unix_ms != 0)
        text_print(stdout, "%s%s (%s)", before, time, when);
}

static void print_verdict(const struct sandstorm_sandbox *sandbox)
{
    char state[SANDBOX_STATE_MAX];
    sandbox_state_text(sandbox, state);
    text_print(stdout, "%s %s run commands: it is %s", sandbox->id,
               sandbox_is_ready(sandbox) ? "can" : "cannot", state);
    print_time(" since ", sandbox->state_unix_ms);
    print_time(", last seen ", sandbox->last_seen_unix_ms);
    (void)puts(".");
}

static void print_finding(const char *mark, const struct why_finding *finding)
{
    CLEANUP_FREE char *words = text_escape(finding->words), *advice = text_escape(finding->advice);
    text_print(stdout, "\n%s %s\n", mark, words ? words : "");
    if (advice && *advice)
        text_print(stdout, "   %s\n", advice);
}

static void on_sandbox(void *userdata, const struct sandstorm_sandbox *sandbox)
{
    struct why_finding findings[WHY_FINDINGS_MAX];
    const struct why_facts facts = { sandbox, wall_ms(), SANDSTORM_VERSION };
    size_t count = why_find(&facts, findings);
    unsigned number = 0;
    *(bool *)userdata = sandbox_is_ready(sandbox);
    print_verdict(sandbox);
    for (size_t i = 0; i < count; i++)
        if (findings[i].weight != WHY_NOTE) {
            char mark[8];
            (void)snprintf(mark, sizeof(mark), "%u.", ++number);
            print_finding(mark, &findings[i]);
        }
    for (size_t i = 0; i < count; i++)
        if (findings[i].weight == WHY_NOTE)
            print_finding("- ", &findings[i]);
}

static int act(const void *values, char **words, struct sandstorm_error *error)
{
    const struct arguments *arguments = values;
    bool ready = false;
    CLEANUP_SANDSTORM struct sandstorm_client *client = NULL;
    if (cli_connect(&arguments->common, &client, error) < 0 ||
        sandstorm_sandbox_get(client, words[0], on_sandbox, &ready, error) < 0)
        return -1;
    return ready ? 0 : NOT_READY;
}

const struct cli_verb cli_why = {
    .name = "why",
    .page = &page,
    .act = act,
    .size = sizeof(struct arguments),
    .words_min = 1,
    .words_max = 1,
};
