/* A command in the foreground. Called by cli/cmd_exec.c, cli/cmd_shell.c and cli/cmd_attach.c;
 * next: cli/raw.c for the terminal, cli/keys.c for our own keys, client/exec.c for everything else.
 */
#include "cli/foreground.h"

#include "cli/cli.h"
#include "cli/raw.h"
#include "cli/result.h"
#include "cli/terminal.h"
#include "cli/text.h"
#include "client/client-internal.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>

/* A program that draws its screen does so when the size changes. It hears of two changes only when
 * some time is between them. */
#define NUDGE_US 100000u

/* Colours and character sets as they are by default, for output from its middle. */
#define FRESH "\x1b[0m\x1b(B"
/* And everything that a program may have left behind that did not end in front of us: the other
 * screen, an invisible cursor, keys and mice that talk. See console_codes(4) and xterm's
 * control sequences; what a terminal does not know, it passes over. */
#define TIDY                                                                                       \
    FRESH "\x1b[?1047l\x1b[?25h\x1b[?1l\x1b>\x1b[?2004l\x1b[?1000l\x1b[?1002l\x1b[?1003l"          \
          "\x1b[?1006l\r\n"

/* Signals that are passed on; the second INT, TERM or HUP is for us. */
static const struct {
    int number;
    const char *name; /* NULL: ours alone */
    bool leave, terminal;
} passed[FOREGROUND_SIGNALS] = {
    { SIGINT, "INT", true, false },    { SIGTERM, "TERM", true, false },
    { SIGHUP, "HUP", true, false },    { SIGQUIT, "QUIT", false, false },
    { SIGUSR1, "USR1", false, false }, { SIGUSR2, "USR2", false, false },
    { SIGWINCH, NULL, false, true },   { SIGTSTP, NULL, false, true },
    { SIGCONT, NULL, false, true },
};

/* In raw mode a newline alone does not go back to the margin. */
static void note(const struct foreground *foreground, const char *text)
{
    if (foreground->quiet)
        return;
    if (raw_active())
        (void)fputs("\r", stderr);
    cli_complain(text);
    if (raw_active())
        (void)fputs("\r", stderr);
}

static void note_format(const struct foreground *foreground, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void note_format(const struct foreground *foreground, const char *fmt, ...)
{
    char text[SANDSTORM_TEXT_MAX];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    note(foreground, text);
}

static void write_terminal(const char *text)
{
    (void)fputs(text, stdout);
    (void)fflush(stdout);
}

/* The size of the terminal. */

static void send_size(const struct foreground *foreground)
{
    unsigned rows, columns;
    terminal_size(&rows, &columns);
    (void)sandstorm_exec_resize(foreground->exec, rows, columns, NULL);
}

static void on_nudge(void *userdata)
{
    const struct foreground *foreground = userdata;
    if (foreground->exec)
        send_size(foreground);
}

static void on_attached(void *userdata)
{
    struct foreground *foreground = userdata;
    unsigned rows, columns;
    if (!foreground->redraw || !foreground->terminal)
        return;
    terminal_size(&rows, &columns);
    (void)sandstorm_exec_resize(foreground->exec, rows > 1 ? rows - 1 : 2, columns, NULL);
    loop_timer_start(foreground->nudge, NUDGE_US);
}

/* Leaving and coming back. */

static void suspend(struct foreground *foreground)
{
    raw_leave();
    /* The whole group, as a terminal's own key would: a shell that waits for it sees it stop. */
    (void)kill(0, SIGSTOP);
    if (foreground->terminal)
        raw_enter();
}

static void on_continued(struct foreground *foreground)
{
    if (!foreground->terminal || !foreground->exec)
        return;
    raw_enter();
    send_size(foreground);
}

static void leave(struct foreground *foreground, int number)
{
    foreground->number = number;
    sandstorm_exec_detach(foreground->exec);
}

/* First the command hears it; then, where that is ours to decide, it is stopped; then we go. */
static void on_leave(struct foreground *foreground, int number, const char *name)
{
    unsigned times = ++foreground->asked_to_leave;
    if (foreground->watch || times > (foreground->cancels ? 2u : 1u)) {
        leave(foreground, number);
    } else if (times == 2) {
        (void)sandstorm_exec_cancel(foreground->exec, NULL);
        note(foreground, "stopping the command, by force if it must be; once more leaves without "
                         "its result");
    } else {
        (void)sandstorm_exec_signal(foreground->exec, name, NULL);
        if (number == SIGINT)
            note(foreground, foreground->cancels
                                 ? "interrupting the command; press Ctrl-C again to stop it"
                                 : "interrupting the command; press Ctrl-C again to leave it");
    }
}

static void on_signal(void *userdata, int number)
{
    struct foreground *foreground = userdata;
    size_t i = 0;
    while (i < FOREGROUND_SIGNALS && passed[i].number != number)
        i++;
    if (i == FOREGROUND_SIGNALS)
        return;
    /* Still waiting for the sandbox: nothing was started. */
    if (!foreground->exec && passed[i].leave)
        _exit(128 + number);
    if (number == SIGTSTP)
        suspend(foreground);
    else if (number == SIGCONT)
        on_continued(foreground);
    else if (!foreground->exec)
        return;
    else if (number == SIGWINCH)
        send_size(foreground);
    else if (passed[i].leave)
        on_leave(foreground, number, passed[i].name);
    else
        (void)sandstorm_exec_signal(foreground->exec, passed[i].name, NULL);
}

int foreground_prepare(const struct foreground *foreground, struct err *err)
{
    int numbers[FOREGROUND_SIGNALS];
    unsigned count = 0;
    for (size_t i = 0; i < FOREGROUND_SIGNALS; i++)
        if (foreground->terminal || !passed[i].terminal)
            numbers[count++] = passed[i].number;
    return loop_signals_block(numbers, count, err);
}

int foreground_begin(struct foreground *foreground, struct sandstorm_client *client,
                     struct err *err)
{
    foreground->client = client;
    keys_init(&foreground->keys, foreground->escape);
    for (size_t i = 0; i < FOREGROUND_SIGNALS; i++)
        if ((foreground->terminal || !passed[i].terminal) &&
            loop_signal_new(client_loop(client), passed[i].number, on_signal, foreground,
                            &foreground->signals[i], err) < 0)
            return -1;
    return loop_timer_new(client_loop(client), on_nudge, foreground, &foreground->nudge, err);
}

/* The streams. */

static void on_notice(void *userdata, const char *text)
{
    note(userdata, text);
}

static void show_keys(const struct foreground *foreground)
{
    int key = foreground->escape;
    raw_leave();
    text_print(stderr, "\n" KEYS_HELP_TEXT, key, key, key, key, key, key);
    raw_enter();
}

static size_t on_typed(void *userdata, void *data, size_t size)
{
    struct foreground *foreground = userdata;
    enum keys_action action;
    size_t left = keys_filter(&foreground->keys, data, size, &action);
    if (action == KEYS_LEAVE)
        leave(foreground, 0);
    else if (action == KEYS_SUSPEND)
        suspend(foreground);
    else if (action == KEYS_HELP)
        show_keys(foreground);
    return left;
}

void foreground_streams(struct foreground *foreground, bool input, struct sandstorm_streams *ret)
{
    ret->stdin_fd = input ? STDIN_FILENO : -1;
    ret->stdout_fd = STDOUT_FILENO;
    ret->stderr_fd = STDERR_FILENO;
    ret->typed = foreground->terminal ? on_typed : NULL;
    ret->notice = on_notice;
    ret->attached = on_attached;
    ret->userdata = foreground;
}

/* To the end. */

static int left_status(const struct foreground *foreground, const char *id)
{
    if (foreground->watch)
        return foreground->number == SIGINT ? 0 : 128 + foreground->number;
    note_format(foreground, "detached; 'sandstorm attach %s' goes on with it", id);
    return foreground->number ? 128 + foreground->number : 0;
}

static int no_result(const struct foreground *foreground, const char *text)
{
    const char *id = sandstorm_exec_id(foreground->exec);
    cli_complain(text);
    if (!sandstorm_exec_may_run(foreground->exec))
        return FOREGROUND_BEFORE_START;
    note_format(
        foreground,
        "'sandstorm wait %s' asks for its result, 'sandstorm attach %s --from %llu' goes on "
        "with its output",
        id, id, (unsigned long long)sandstorm_exec_offset(foreground->exec));
    return FOREGROUND_UNKNOWN;
}

int foreground_follow(struct foreground *foreground, struct sandstorm_exec *exec)
{
    struct sandstorm_error error = { 0 };
    struct sandstorm_outcome outcome;
    char sentence[RESULT_SENTENCE_MAX];
    foreground->exec = exec;
    if (foreground->terminal)
        raw_enter();
    if (foreground->redraw && isatty(STDOUT_FILENO))
        write_terminal(FRESH);
    int r = sandstorm_exec_wait(exec, &outcome, &error);
    bool ended = r == 0 && outcome.result == SANDSTORM_RESULT_EXITED;
    /* What ended by itself has left the terminal as it wants it to be. */
    if (!ended && (foreground->terminal || (foreground->redraw && isatty(STDOUT_FILENO))))
        write_terminal(TIDY);
    raw_leave();
    if (r < 0 && error.code == SANDSTORM_CANCELLED)
        return left_status(foreground, sandstorm_exec_id(exec));
    if (r < 0)
        return no_result(foreground, error.text);
    result_sentence(&outcome, sentence);
    if (*sentence)
        note(foreground, sentence);
    return sandstorm_exit_status(&outcome);
}

void foreground_done(struct foreground *foreground)
{
    raw_leave();
    sandstorm_exec_free(foreground->exec);
    for (size_t i = 0; i < FOREGROUND_SIGNALS; i++)
        loop_signal_free(foreground->signals[i]);
    loop_timer_free(foreground->nudge);
}
