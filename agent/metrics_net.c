/* Network counters for a heartbeat: the bytes of every interface but the loopback one, from
 * /proc/net/dev. That file shows the network namespace of whoever reads it, so a link that runs in
 * one of its own reports what that namespace sees. A step of agent/metrics.c; calls nobody else. */
#include "agent/metrics-internal.h"

#include <string.h>

/* More than this is no VM, or no /proc/net/dev. */
#define METRICS_INTERFACES_MAX 4096u
#define NET_DEV                "net/dev"
#define HEADING_LINES          2u
#define RECEIVED_COLUMN        0u
#define SENT_COLUMN            8u
#define COLUMNS                16u

/* "  eth0: BYTES PACKETS ..." with eight columns for each direction. Interface names have neither
 * spaces nor colons, and old kernels put no space after the colon. Adds to the sums; false when it
 * is something else. */
static bool add_interface(const char *line, uint64_t *received, uint64_t *sent)
{
    const char *at = line;
    metrics_skip_spaces(&at);
    size_t name = strcspn(at, ": \n");
    if (name == 0 || at[name] != ':')
        return false;
    bool loopback = name == 2 && strncmp(at, "lo", 2) == 0;
    at += name + 1;
    for (unsigned column = 0; column < COLUMNS; column++) {
        uint64_t value;
        metrics_skip_spaces(&at);
        if (!metrics_parse_u64(&at, &value) || (*at != ' ' && *at != '\n'))
            return false;
        uint64_t *sum = column == RECEIVED_COLUMN ? received : column == SENT_COLUMN ? sent : NULL;
        if (sum && !loopback && __builtin_add_overflow(*sum, value, sum))
            return false;
    }
    return true;
}

int metrics_sample_network(struct metrics_sampler *sampler, struct metrics_sample *sample,
                           struct err *err)
{
    CLEANUP_METRICS_FILE FILE *file = metrics_open(sampler, NET_DEV, err);
    if (!file)
        return -1;
    char line[METRICS_LINE_MAX];
    uint64_t received = 0, sent = 0;
    for (unsigned i = 0; i < HEADING_LINES; i++)
        if (!fgets(line, sizeof(line), file) || !strchr(line, '|'))
            return metrics_malformed(sampler, NET_DEV, err);
    for (unsigned count = 0; fgets(line, sizeof(line), file); count++)
        if (count == METRICS_INTERFACES_MAX || !add_interface(line, &received, &sent))
            return metrics_malformed(sampler, NET_DEV, err);
    sample->network_received_bytes = received;
    sample->network_sent_bytes = sent;
    return 0;
}
