/* A terminal taken over for a while. Called by cli/cmd_top.c and,
 * for its size, by cli/foreground.c. See console_codes(4) and termios(3).
 */
#include "cli/terminal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define ALTERNATE_SCREEN "\x1b[?1049h"
#define NORMAL_SCREEN    "\x1b[?1049l"
#define CLEAR            "\x1b[2J"
#define HIDE_CURSOR      "\x1b[?25l"
#define SHOW_CURSOR      "\x1b[?25h"

bool terminal_there(void)
{
    const char *type = getenv("TERM");
    return isatty(STDOUT_FILENO) && type && *type && strcmp(type, "dumb") != 0;
}

bool terminal_colours(void)
{
    const char *none = getenv("NO_COLOR");
    return terminal_there() && !(none && *none);
}

void terminal_take(struct terminal *terminal)
{
    struct termios raw;
    if (terminal->taken)
        return;
    terminal->taken = true;
    /* Of a process in the background, or without a terminal for input: the keys are not ours. */
    terminal->raw =
        tcgetattr(STDIN_FILENO, &terminal->saved) == 0 && tcgetpgrp(STDIN_FILENO) == getpgrp();
    if (terminal->raw) {
        raw = terminal->saved;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        raw.c_cc[VMIN] = 1;
        raw.c_cc[VTIME] = 0;
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    (void)fputs(ALTERNATE_SCREEN HIDE_CURSOR, stdout);
    (void)fflush(stdout);
}

void terminal_give_back(struct terminal *terminal)
{
    if (!terminal->taken)
        return;
    terminal->taken = false;
    /* Cleared first: a terminal that was resized meanwhile may carry lines of the one over to the
     * other (tmux does). */
    (void)fputs(CLEAR SHOW_CURSOR NORMAL_SCREEN, stdout);
    (void)fflush(stdout);
    if (terminal->raw)
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &terminal->saved);
}

void terminal_size(unsigned *ret_rows, unsigned *ret_columns)
{
    struct winsize size = { 0 };
    bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
    *ret_rows = known && size.ws_row > 0 ? size.ws_row : TERMINAL_ROWS;
    *ret_columns = known && size.ws_col > 0 ? size.ws_col : TERMINAL_COLUMNS;
}

void terminal_describe(unsigned *ret_rows, unsigned *ret_columns, const char **ret_type)
{
    const char *type = getenv("TERM");
    terminal_size(ret_rows, ret_columns);
    *ret_type = type && *type ? type : NULL;
}
