/* Two network namespaces and what happens between them, by ip(8) and nft(8). Used by
 * tests/integration/test_partition.c; the far side is held by a process below a guard of
 * tests/harness/proc.c, so it ends with the test. */
#include "tests/harness/netns.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#define NEAR "sandstorm0"
#define FAR  "sandstorm1"

struct netns {
    struct proc *holder;
    char path[64];
    const char *enter[3];
};

static int run(const char *const *argv, const char *input, struct err *err)
{
    const struct proc_spec spec = { .argv = argv };
    CLEANUP_RESULT struct proc_result result = { 0 };
    if (proc_run(&spec, input, input ? strlen(input) : 0, PROC_DEADLINE_US, &result, err) < 0)
        return -1;
    if (result.status != 0)
        return err_set(err, ERR_SYSTEM, "%s failed with %d: %s%s", argv[0], result.status,
                       result.err, input ? input : "");
    return 0;
}
#define RUN_NEAR(...) run((const char *[]){ __VA_ARGS__, NULL }, NULL, err)
#define RUN_FAR(...)                                                                               \
    run((const char *[]){ netns->enter[0], netns->enter[1], __VA_ARGS__, NULL }, NULL, err)

/* The holder says a word when it is in its namespace. */
static int start_holder(struct netns *netns, struct err *err)
{
    int fds[2];
    char word;
    if (pipe2(fds, O_CLOEXEC) < 0)
        return err_errno(err, errno, "cannot make a pipe");
    CLEANUP_FD int ours = fds[0];
    CLEANUP_FD int theirs = fds[1];
    const struct proc_spec spec = {
        .argv = (const char *[]){ "unshare", "--net", "sh", "-c",
                                  "ip link set lo up && echo up && exec sleep infinity", NULL },
        .in = -1,
        .out = theirs,
        .err = -1,
    };
    if (proc_start(&spec, &netns->holder, err) < 0)
        return -1;
    close_fd(&theirs);
    struct pollfd wait = { .fd = ours, .events = POLLIN };
    if (poll(&wait, 1, (int)(PROC_DEADLINE_US / 1000)) != 1 || read(ours, &word, 1) != 1)
        return err_set(err, ERR_SYSTEM, "the other network namespace cannot be made");
    (void)snprintf(netns->path, sizeof(netns->path), "--net=/proc/%d/ns/net",
                   proc_pid(netns->holder));
    netns->enter[0] = "nsenter";
    netns->enter[1] = netns->path;
    return 0;
}

static int join_both(struct netns *netns, struct err *err)
{
    char pid[16];
    (void)snprintf(pid, sizeof(pid), "%d", proc_pid(netns->holder));
    if (RUN_NEAR("ip", "link", "set", "lo", "up") < 0 ||
        RUN_NEAR("ip", "link", "add", NEAR, "type", "veth", "peer", "name", FAR) < 0 ||
        RUN_NEAR("ip", "link", "set", FAR, "netns", pid) < 0 ||
        RUN_NEAR("ip", "address", "add", NETNS_HOST "/24", "dev", NEAR) < 0 ||
        RUN_NEAR("ip", "link", "set", NEAR, "up") < 0 ||
        RUN_FAR("ip", "address", "add", NETNS_FAR_HOST "/24", "dev", FAR) < 0 ||
        RUN_FAR("ip", "link", "set", FAR, "up") < 0)
        return -1;
    return 0;
}

int netns_new(struct netns **ret, struct err *err)
{
    if (unshare(CLONE_NEWNET) < 0)
        return err_errno(err, errno, "cannot make a network namespace; this needs root");
    struct netns *netns = calloc(1, sizeof(*netns));
    if (!netns)
        return err_nomem(err);
    if (start_holder(netns, err) < 0 || join_both(netns, err) < 0) {
        netns_free(netns);
        return -1;
    }
    *ret = netns;
    return 0;
}

void netns_free(struct netns *netns)
{
    if (!netns)
        return;
    proc_free(netns->holder);
    free(netns);
}

const char *const *netns_enter(const struct netns *netns)
{
    return netns->enter;
}

int netns_set_cut(struct netns *netns, enum netns_cut cut, struct err *err)
{
    static const struct {
        const char *in, *out;
    } rules[] = {
        [NETNS_WHOLE] = { "", "" },
        [NETNS_CUT_BOTH] = { "drop", "drop" },
        [NETNS_CUT_UP] = { "drop", "" },
        [NETNS_CUT_DOWN] = { "", "drop" },
        [NETNS_RESET] = { "meta l4proto tcp reject with tcp reset",
                          "meta l4proto tcp reject with tcp reset" },
    };
    char script[1024];
    (void)netns;
    (void)snprintf(script, sizeof(script),
                   "add table inet cut\n"
                   "delete table inet cut\n"
                   "add table inet cut\n"
                   "add chain inet cut in { type filter hook input priority 0; }\n"
                   "add chain inet cut out { type filter hook output priority 0; }\n"
                   "%s%s\n%s%s\n",
                   *rules[cut].in ? "add rule inet cut in iifname " NEAR " " : "", rules[cut].in,
                   *rules[cut].out ? "add rule inet cut out oifname " NEAR " " : "",
                   rules[cut].out);
    return run((const char *[]){ "nft", "-f", "-", NULL }, script, err);
}
