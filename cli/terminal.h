/* A terminal taken over for a while: the alternate screen, no cursor, keys as they are pressed; and
 * given back as it was. Main thread. */
#pragma once

#include <stdbool.h>
#include <termios.h>

#define TERMINAL_ROWS    24u /* where nobody says how large it is */
#define TERMINAL_COLUMNS 80u

struct terminal {
    bool taken, raw;
    struct termios saved;
};

/* stdout is one that knows escape sequences. */
bool terminal_there(void);
/* Colours are not unwelcome: https://no-color.org */
bool terminal_colours(void);
void terminal_take(struct terminal *terminal);
/* Does nothing when it is not taken. */
void terminal_give_back(struct terminal *terminal);
void terminal_size(unsigned *ret_rows, unsigned *ret_columns);
/* What another terminal must be like to look like ours; *ret_type is NULL where nobody knows. */
void terminal_describe(unsigned *ret_rows, unsigned *ret_columns, const char **ret_type);
