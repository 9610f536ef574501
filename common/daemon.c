/* The daemon's frame: signals become loop events, readiness goes to the service manager, root is
 * given up. Called by the main() of each daemon; calls the root object's stop verb. */
#include "common/daemon.h"

#include "common/clock.h"
#include "common/log.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <systemd/sd-daemon.h>

static const int stop_signals[] = { SIGTERM, SIGINT };

struct daemon {
    struct loop *loop;
    struct loop_signal *signals[ELEMENTS(stop_signals)];
    void (*on_stop)(void *userdata, bool hurry);
    void *userdata;
    unsigned stops;
};

int daemon_prepare(struct err *err)
{
    const int blocked[] = { SIGTERM, SIGINT, SIGHUP };
    int fd;
    do {
        fd = open("/dev/null", O_RDWR); /* inherited on purpose, as 0 to 2 are */
    } while (fd >= 0 && fd <= STDERR_FILENO);
    close_fd(&fd);
    if (signal(SIGPIPE, SIG_IGN) == SIG_ERR)
        return err_errno(err, errno, "cannot ignore SIGPIPE");
    /* A write beyond the limit of file sizes is an error to be told, as a full disk is. */
    if (signal(SIGXFSZ, SIG_IGN) == SIG_ERR)
        return err_errno(err, errno, "cannot ignore SIGXFSZ");
    return loop_signals_block(blocked, ELEMENTS(blocked), err);
}

int daemon_raise_files(uint64_t needed, struct rlimit *ret_before, struct err *err)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return err_errno(err, errno, "cannot read the limit of open files");
    if (limit.rlim_max < needed)
        return err_set(err, ERR_EXHAUSTED,
                       "the limit of open files is %llu but %llu are needed; raise LimitNOFILE= in "
                       "the unit, or the hard limit (ulimit -Hn)",
                       (unsigned long long)limit.rlim_max, (unsigned long long)needed);
    if (ret_before)
        *ret_before = limit;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
        return err_errno(err, errno, "cannot raise the limit of open files");
    return 0;
}

int daemon_drop_privileges(const char *user, struct err *err)
{
    if (!user || !*user)
        return 0;
    errno = 0;
    const struct passwd *entry = getpwnam(user);
    if (!entry)
        return err_set(err, ERR_NOT_FOUND,
                       "there is no user \"%s\" to run as; create it or change "
                       "the setting \"user\"",
                       user);
    if (getuid() == entry->pw_uid)
        return 0;
    if (initgroups(user, entry->pw_gid) < 0 ||
        setresgid(entry->pw_gid, entry->pw_gid, entry->pw_gid) < 0 ||
        setresuid(entry->pw_uid, entry->pw_uid, entry->pw_uid) < 0)
        return err_errno(err, errno, "cannot become user \"%s\"; start as root or as that user",
                         user);
    return 0;
}

int daemon_hide_memory(struct err *err)
{
    /* See prctl(2). Not RLIMIT_CORE: core(5) ignores it where core_pattern names a program. */
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return err_errno(err, errno, "cannot keep this process's memory out of core dumps");
    return 0;
}

static void on_signal(void *userdata, int number)
{
    struct daemon *daemon = userdata;
    daemon->stops++;
    log_info("stopping", LF_INT("signal", number), LF_UINT("signals", daemon->stops));
    if (daemon->stops > 2)
        _exit(128 + number);
    daemon_stopping();
    daemon->on_stop(daemon->userdata, daemon->stops > 1);
}

int daemon_new(struct loop *loop, void (*on_stop)(void *userdata, bool hurry), void *userdata,
               struct daemon **ret, struct err *err)
{
    struct daemon *daemon = calloc(1, sizeof(*daemon));
    if (!daemon)
        return err_nomem(err);
    daemon->loop = loop;
    daemon->on_stop = on_stop;
    daemon->userdata = userdata;
    for (unsigned i = 0; i < ELEMENTS(stop_signals); i++)
        if (loop_signal_new(loop, stop_signals[i], on_signal, daemon, &daemon->signals[i], err) <
            0) {
            daemon_free(daemon);
            return -1;
        }
    *ret = daemon;
    return 0;
}

void daemon_free(struct daemon *daemon)
{
    if (!daemon)
        return;
    for (unsigned i = 0; i < ELEMENTS(stop_signals); i++)
        loop_signal_free(daemon->signals[i]);
    free(daemon);
}

static void notify(const char *prefix, const char *fmt, va_list ap)
    __attribute__((format(printf, 2, 0)));

static void notify(const char *prefix, const char *fmt, va_list ap)
{
    char status[512];
    (void)vsnprintf(status, sizeof(status), fmt, ap);
    /* Nobody to tell is not an error: the daemon also runs without a service manager. */
    (void)sd_notifyf(0, "%sSTATUS=%s", prefix, status);
}

void daemon_ready(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    notify("READY=1\n", fmt, ap);
    va_end(ap);
}

void daemon_status(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    notify("", fmt, ap);
    va_end(ap);
}

void daemon_reloading(void)
{
    (void)sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%llu", (unsigned long long)monotonic_us());
}

void daemon_stopping(void)
{
    (void)sd_notify(0, "STOPPING=1");
}
