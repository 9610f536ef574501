/* tmux as a terminal that a test can read. The server stays in the foreground below a guard
 * (tests/harness/proc.c), which takes it and what runs in it down; each look and each key is a tmux
 * client of its own. A terminal says nothing when it has changed, so waiting is looking again. */
#include "tests/harness/screen.h"

#include "common/clock.h"

#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define LOOK_AGAIN_NS 20000000
#define WORDS_MAX     16u

struct screen {
    struct proc *server;
    char socket[CLUSTER_PATH_MAX], settings[CLUSTER_PATH_MAX];
    char path[PATH_MAX + 64]; /* PATH=...; a window has that of the client which asked for it */
};

static void pause_briefly(void)
{
    (void)nanosleep(&(struct timespec){ .tv_nsec = LOOK_AGAIN_NS }, NULL);
}

/* One tmux client to its end. */
static struct proc_result tmux(const struct screen *screen, const char *const *words)
{
    const char *argv[WORDS_MAX + 5] = { "tmux", "-N", "-S", screen->socket };
    unsigned count = 4;
    for (; *words; words++) {
        cr_assert_lt(count, WORDS_MAX + 4);
        argv[count++] = *words;
    }
    return fixture_run(argv, (const char *[]){ screen->path, NULL });
}

#define TMUX(screen, ...) tmux_must((screen), (const char *[]){ __VA_ARGS__, NULL })

static void tmux_must(const struct screen *screen, const char *const *words)
{
    CLEANUP_RESULT struct proc_result result = tmux(screen, words);
    cr_assert_eq(result.status, 0, "tmux %s: %s", *words, result.err);
}

static void write_settings(struct screen *screen)
{
    (void)snprintf(screen->socket, sizeof(screen->socket), "%s", fixture_path("tmux"));
    (void)snprintf(screen->settings, sizeof(screen->settings), "%s", fixture_path("tmux.conf"));
    FILE *file = fopen(screen->settings, "we");
    cr_assert_not_null(file);
    (void)fputs("set -g status off\nset -g escape-time 0\n"
                "set -g default-shell /bin/sh\nset -g default-terminal screen\n",
                file);
    cr_assert_eq(fclose(file), 0);
}

static void start_server(struct screen *screen)
{
    char program[PATH_MAX], endpoint[96], identity[160];
    (void)snprintf(program, sizeof(program), "%s", cluster_program("sandstorm"));
    (void)snprintf(screen->path, sizeof(screen->path), "PATH=%s:/usr/bin:/bin", dirname(program));
    (void)snprintf(endpoint, sizeof(endpoint), "SANDSTORM_ENDPOINT=%s:%d", fixture()->host,
                   fixture()->port);
    (void)snprintf(identity, sizeof(identity), "SANDSTORM_IDENTITY=%s", fixture()->admin);
    const char *const argv[] = { "tmux", "-D", "-S", screen->socket, "-f", screen->settings, NULL };
    const char *const env[] = { screen->path,     endpoint,     identity, "PS1=" SCREEN_PROMPT,
                                "LC_ALL=C.UTF-8", "TERM=xterm", "ENV=",   NULL };
    const struct proc_spec spec = { .argv = argv, .env = env, .in = -1, .out = -1, .err = -1 };
    MUST(proc_start(&spec, &screen->server, err));
}

struct screen *screen_open(unsigned rows, unsigned columns)
{
    struct screen *screen = calloc(1, sizeof(*screen));
    cr_assert_not_null(screen);
    char height[16], width[16];
    (void)snprintf(height, sizeof(height), "%u", rows);
    (void)snprintf(width, sizeof(width), "%u", columns);
    write_settings(screen);
    start_server(screen);
    const char *const words[] = {
        "new-session", "-d", "-x", width, "-y", height, "exec sh -i", NULL
    };
    uint64_t deadline = monotonic_us() + PROC_DEADLINE_US;
    for (int status = -1; status != 0;) {
        CLEANUP_RESULT struct proc_result result = tmux(screen, words);
        status = result.status;
        cr_assert(status == 0 || monotonic_us() < deadline, "tmux does not start: %s", result.err);
        if (status != 0)
            pause_briefly();
    }
    screen_wait_prompt(screen, SCREEN_PROMPT);
    return screen;
}

void screen_free(struct screen *screen)
{
    if (!screen)
        return;
    proc_free(screen->server);
    free(screen);
}

void screen_type(struct screen *screen, const char *text)
{
    TMUX(screen, "send-keys", "-l", "--", text);
}

void screen_press(struct screen *screen, const char *key)
{
    TMUX(screen, "send-keys", key);
}

void screen_enter(struct screen *screen, const char *line)
{
    screen_type(screen, line);
    screen_press(screen, "Enter");
}

void screen_resize(struct screen *screen, unsigned rows, unsigned columns)
{
    char height[16], width[16];
    (void)snprintf(height, sizeof(height), "%u", rows);
    (void)snprintf(width, sizeof(width), "%u", columns);
    TMUX(screen, "resize-window", "-x", width, "-y", height);
}

char *screen_text(struct screen *screen)
{
    struct proc_result result = tmux(screen, (const char *[]){ "capture-pane", "-p", "-J", NULL });
    char *text = TAKE_PTR(result.out);
    cr_assert_eq(result.status, 0, "%s", result.err);
    proc_result_done(&result);
    return text;
}

/* Waiting. Each condition is a function of what is to be seen. */

struct wanted {
    const char *text;
    unsigned count;
};

typedef bool (*condition_fn)(const char *shown, const struct wanted *wanted);

static void wait_until(struct screen *screen, condition_fn holds, const struct wanted *wanted)
{
    uint64_t deadline = monotonic_us() + PROC_DEADLINE_US;
    for (;;) {
        CLEANUP_FREE char *shown = screen_text(screen);
        if (holds(shown, wanted))
            return;
        cr_assert_lt(monotonic_us(), deadline, "waited for \"%s\", and the screen shows:\n%s",
                     wanted->text, shown);
        pause_briefly();
    }
}

static bool shows(const char *shown, const struct wanted *wanted)
{
    return strstr(shown, wanted->text);
}

static bool differs(const char *shown, const struct wanted *wanted)
{
    return strcmp(shown, wanted->text) != 0;
}

static bool has_lines(const char *shown, const struct wanted *wanted)
{
    unsigned count = 0;
    for (const char *line = shown; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, wanted->text, strlen(wanted->text)) == 0)
            count++;
    }
    return count == wanted->count;
}

static bool is_prompted(const char *shown, const struct wanted *wanted)
{
    size_t size = strlen(shown), prompt = strlen(wanted->text);
    while (size > 0 && shown[size - 1] == '\n')
        size--;
    return size >= prompt && memcmp(shown + size - prompt, wanted->text, prompt) == 0;
}

void screen_wait(struct screen *screen, const char *text)
{
    wait_until(screen, shows, &(struct wanted){ .text = text });
}

void screen_wait_prompt(struct screen *screen, const char *prompt)
{
    wait_until(screen, is_prompted, &(struct wanted){ .text = prompt });
}

void screen_wait_lines(struct screen *screen, const char *beginning, unsigned count)
{
    wait_until(screen, has_lines, &(struct wanted){ .text = beginning, .count = count });
}

void screen_wait_change(struct screen *screen, const char *before)
{
    wait_until(screen, differs, &(struct wanted){ .text = before });
}

void screen_ask(struct screen *screen, const char *line, const char *prompt, const char *text)
{
    uint64_t deadline = monotonic_us() + PROC_DEADLINE_US;
    const struct wanted answer = { .text = text };
    for (;;) {
        screen_enter(screen, line);
        screen_wait_prompt(screen, prompt);
        CLEANUP_FREE char *shown = screen_text(screen);
        if (shows(shown, &answer))
            return;
        cr_assert_lt(monotonic_us(), deadline, "asked for \"%s\", and the screen shows:\n%s", text,
                     shown);
    }
}
