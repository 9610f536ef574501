/* A command with a pseudo-terminal for its three streams. The runner keeps the master, which is
 * read and written like a pipe by agent/command_io.c, and while the leader lives the slave too:
 * somebody always has it open, so the kernel never reports a hangup that is none (a leader that
 * closes its terminal may open it again), and there is nothing to poll for. The kernel signals the
 * foreground group at the leader's death whoever holds the slave, see tty_ioctl(4) and
 * setsid(2). Called by agent/command.c and agent/command_orders.c; next: agent/command_io.c. */
#include "agent/command-internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>

/* What a terminal is when nobody says. Every image with ncurses knows xterm. */
#define DEFAULT_ROWS    24u
#define DEFAULT_COLUMNS 80u
#define DEFAULT_TYPE    "xterm"

static bool fits(const Sandstorm__V1__TerminalSize *size)
{
    return size->rows <= COMMAND_TERMINAL_MAX && size->columns <= COMMAND_TERMINAL_MAX;
}

/* Programs divide by these numbers: an unknown one is never told as 0. */
static struct winsize to_winsize(const Sandstorm__V1__TerminalSize *size)
{
    return (struct winsize){
        .ws_row = (unsigned short)(size && size->rows ? size->rows : DEFAULT_ROWS),
        .ws_col = (unsigned short)(size && size->columns ? size->columns : DEFAULT_COLUMNS),
    };
}

int command_terminal_check(const Sandstorm__V1__Terminal *terminal, struct err *err)
{
    if (terminal && terminal->size && !fits(terminal->size))
        return err_errno(err, EINVAL,
                         "a terminal of %u rows and %u columns; at most %u of each, and 0 for the "
                         "default of %ux%u",
                         terminal->size->rows, terminal->size->columns, COMMAND_TERMINAL_MAX,
                         DEFAULT_ROWS, DEFAULT_COLUMNS);
    return 0;
}

const char *command_terminal_type(const Sandstorm__V1__Terminal *terminal)
{
    return *terminal->type ? terminal->type : DEFAULT_TYPE;
}

/* By descriptor throughout: a path under /dev/pts could name somebody else's terminal by the time
 * it is opened, see ioctl_tty(2) about TIOCGPTPEER. */
static int open_pair(struct command *command, struct err *err)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (master < 0)
        return err_errno(err, errno,
                         "cannot open a terminal: /dev/ptmx and /dev/pts must be there, and fewer "
                         "than kernel.pty.max in use");
    command->pipes[0].fd = master;
    if (grantpt(master) < 0 || unlockpt(master) < 0)
        return err_errno(err, errno, "cannot unlock a terminal");
    command->slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    return command->slave < 0 ? err_errno(err, errno, "cannot open the slave of a terminal") : 0;
}

static int prepare(const struct command *command, const Sandstorm__V1__Terminal *terminal,
                   uid_t owner, struct err *err)
{
    struct winsize size = to_winsize(terminal->size);
    struct termios settings;
    if (ioctl(command->pipes[0].fd, TIOCSWINSZ, &size) < 0)
        return err_errno(err, errno, "cannot set the size of a terminal");
    /* The base environment speaks UTF-8: erasing takes a character, not a byte. */
    if (tcgetattr(command->slave, &settings) < 0)
        return err_errno(err, errno, "cannot read the settings of a terminal");
    settings.c_iflag |= IUTF8;
    if (tcsetattr(command->slave, TCSANOW, &settings) < 0)
        return err_errno(err, errno, "cannot change the settings of a terminal");
    /* Who runs in it may open it by its name too. */
    if (owner != geteuid() && fchown(command->slave, owner, (gid_t)-1) < 0)
        return err_errno(err, errno, "cannot give a terminal to user %u", (unsigned)owner);
    return 0;
}

static int duplicate(int fd, int *ret, struct err *err)
{
    *ret = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    return *ret < 0 ? err_errno(err, errno, "cannot duplicate a terminal's descriptor") : 0;
}

int command_terminal_open(struct command *command, const Sandstorm__V1__CommandSpec *spec,
                          uid_t owner, int child_fds[3], struct err *err)
{
    command->terminal = true;
    if (open_pair(command, err) < 0 || prepare(command, spec->terminal, owner, err) < 0)
        return -1;
    for (int i = 0; i < 3; i++)
        if (duplicate(command->slave, &child_fds[i], err) < 0)
            return -1;
    /* Of its own, because epoll knows a descriptor once: reading and writing wait apart. */
    if (duplicate(command->pipes[0].fd, &command->input.fd, err) < 0)
        return -1;
    command->input.last = '\n';
    if (spec->stdin_mode == SANDSTORM__V1__STDIN_MODE__STDIN_MODE_UNSPECIFIED)
        command->input.eof = true;
    command->stdin_due = spec->stdin_mode == SANDSTORM__V1__STDIN_MODE__STDIN_MODE_STREAM;
    return 0;
}

bool command_terminal_resize(struct command *command, const Sandstorm__V1__TerminalSize *size,
                             struct command_refusal *ret)
{
    if (!command->terminal || !fits(size)) {
        *ret = (struct command_refusal){
            SANDSTORM__V1__REFUSAL_REASON__REFUSAL_REASON_UNSUPPORTED,
            command->terminal ? "a terminal has at most 65,535 rows and columns"
                              : "the command has no terminal",
        };
        return false;
    }
    /* A window that changes while the command ends is nobody's mistake. The kernel sends SIGWINCH,
     * once for all sizes that nobody has looked at yet, and none for the size that it already is.
     */
    struct winsize winsize = to_winsize(size);
    if (command->state == COMMAND_RUNNING)
        (void)ioctl(command->pipes[0].fd, TIOCSWINSZ, &winsize);
    return true;
}

/* Has what was typed last ended its line? */
static bool line_is_open(const struct termios *settings, uint8_t last)
{
    return last != '\n' && !(last == '\r' && settings->c_iflag & ICRNL) &&
           last != settings->c_cc[VEOF];
}

size_t command_terminal_eof(const struct command *command, uint8_t ret[2])
{
    struct termios settings;
    if (tcgetattr(command->input.fd, &settings) < 0 || !(settings.c_lflag & ICANON) ||
        settings.c_cc[VEOF] == _POSIX_VDISABLE)
        return 0;
    ret[0] = ret[1] = settings.c_cc[VEOF];
    return line_is_open(&settings, command->input.last) ? 2 : 1;
}

void command_terminal_let_go(struct command *command)
{
    close_fd(&command->slave);
}
